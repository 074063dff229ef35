package main

import (
	"math"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/walsink/walsink/committer"
)

// parsed are the flags of run as a command line gives them.
func parsed(t *testing.T, args ...string) *runFlags {
	t.Helper()
	var f runFlags
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(fs)
	if err := fs.Parse(append([]string{"--from", "in.ndjson", "--to", "file:out"}, args...)); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestFlagDefaults(t *testing.T) {
	f := parsed(t)
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	if f.interval != time.Second || f.records != 0 || f.lanes != 1 || f.drainTimeout != 10*time.Second || f.maxRecord != 16<<20 {
		t.Errorf("got %+v", f)
	}
	if o := f.log.options(); o.MaxBytes != 10<<30 || o.GenerationBytes != 32<<20 || o.Retain != 10*time.Minute {
		t.Errorf("log %+v", o)
	}
	if o := f.flush.options(); o.FlushBytes != 0 || o.FlushAge != 0 || o.MaxAttempts != 0 || o.DeadLetters || o.Accept != 0 {
		t.Errorf("flush %+v", o)
	}
}

func TestFlagsReachTheOptions(t *testing.T) {
	f := parsed(t, "--max-bytes", "64MiB", "--generation-size", "8MiB", "--retain", "0s", "--flush-age", "3s",
		"--max-attempts", "4", "--dead-letters", "--dead-limit", "7", "--accept-duplicates", "--accept-loss")
	if o := f.log.options(); o.MaxBytes != 64<<20 || o.GenerationBytes != 8<<20 || o.Retain >= 0 {
		t.Errorf("log %+v", o)
	}
	o := f.flush.options()
	if o.FlushAge != 3*time.Second || o.FlushBytes != math.MaxInt64 || o.MaxAttempts != 4 || !o.DeadLetters || o.DeadLimit != 7 {
		t.Errorf("flush %+v", o)
	}
	if o.Accept != committer.AcceptDuplicates|committer.AcceptLoss {
		t.Errorf("accept %v", o.Accept)
	}
	if o := parsed(t, "--flush-age", "3s", "--flush-bytes", "5MiB").flush.options(); o.FlushBytes != 5<<20 {
		t.Errorf("flush %+v", o)
	}
}

func TestFlagRefusals(t *testing.T) {
	for _, args := range [][]string{
		{"--lanes", "0"}, {"--lanes", "-3"}, {"--checkpoint-interval", "-1s"}, {"--drain-timeout", "0s"},
		{"--require", "always"}, {"--lane-by", "key:"}, {"--lane-by", "field:x"}, {"--lane-by", ""},
		{"--max-bytes", "4095KiB"}, {"--retain", "-1s"}, {"--flush-age", "-1s"}, {"--max-attempts", "-1"}, {"--dead-limit", "0"},
	} {
		if err := parsed(t, args...).check(); classify(err) != codeUsage {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

func TestRoute(t *testing.T) {
	for by, want := range map[string]string{"round-robin": "round", "key:net": "field net", "key:a:b": "field a:b"} {
		r, err := parsed(t, "--lane-by", by).route()
		if err != nil || r.String() != want {
			t.Errorf("%s: got %v, %v, want %s", by, r, err, want)
		}
	}
}

func TestPlaceResolve(t *testing.T) {
	p := place{to: "file:out"}
	if _, err := p.resolve(); err != nil || p.id != "walsink" || p.state == "" {
		t.Errorf("got %+v, %v", p, err)
	}
	p = place{to: "file:out", id: "mine", state: "here"}
	if _, err := p.resolve(); err != nil || p.id != "mine" || p.state != "here" {
		t.Errorf("got %+v, %v", p, err)
	}
	p = place{state: "here"}
	if _, err := p.resolve(); err != nil || p.state != "here" {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, id := range []string{".x", "a/b", "a b", "ä"} {
		p = place{to: "file:out", id: id}
		if _, err := p.resolve(); classify(err) != codeUsage {
			t.Errorf("id %q: %v", id, err)
		}
	}
}
