package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink/committer"
)

// parsed is the job of a command line of run.
func parsed(args ...string) (*job, error) {
	var f jobFlags
	cmd := &cobra.Command{}
	f.register(cmd, "to write to")
	if err := cmd.Flags().Parse(append([]string{"--from", "in.ndjson", "--to", "file:out"}, args...)); err != nil {
		return nil, err
	}
	return f.load()
}

// parse is parsed without an error.
func parse(t *testing.T, args ...string) *job {
	t.Helper()
	j, err := parsed(args...)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestFlagDefaults(t *testing.T) {
	f := parse(t)
	if f.interval != time.Second || f.records != 0 || f.lanes != 1 || f.drainTimeout != 10*time.Second || f.maxRecord != 16<<20 {
		t.Errorf("got %+v", f)
	}
	if o := f.outputs[0].log.options(); o.MaxBytes != 10<<30 || o.GenerationBytes != 32<<20 || o.Retain != 10*time.Minute {
		t.Errorf("log %+v", o)
	}
	if o := f.outputs[0].flush.options(); o.FlushBytes != 0 || o.FlushAge != 0 || o.MaxAttempts != 0 || o.DeadLetters || o.Accept != 0 {
		t.Errorf("flush %+v", o)
	}
}

func TestFlagsReachTheOptions(t *testing.T) {
	f := parse(t, "--max-bytes", "64MiB", "--generation-size", "8MiB", "--retain", "0s", "--flush-age", "3s",
		"--max-attempts", "4", "--dead-letters", "--dead-limit", "7", "--accept-duplicates", "--accept-loss")
	if o := f.outputs[0].log.options(); o.MaxBytes != 64<<20 || o.GenerationBytes != 8<<20 || o.Retain >= 0 {
		t.Errorf("log %+v", o)
	}
	o := f.outputs[0].flush.options()
	if o.FlushAge != 3*time.Second || o.FlushBytes != math.MaxInt64 || o.MaxAttempts != 4 || !o.DeadLetters || o.DeadLimit != 7 {
		t.Errorf("flush %+v", o)
	}
	if o.Accept != committer.AcceptDuplicates|committer.AcceptLoss {
		t.Errorf("accept %v", o.Accept)
	}
	if o := parse(t, "--flush-age", "3s", "--flush-bytes", "5MiB").outputs[0].flush.options(); o.FlushBytes != 5<<20 {
		t.Errorf("flush %+v", o)
	}
}

func TestFlagRefusals(t *testing.T) {
	for _, args := range [][]string{
		{"--lanes", "0"}, {"--lanes", "-3"}, {"--checkpoint-interval", "-1s"}, {"--drain-timeout", "0s"},
		{"--require", "always"}, {"--lane-by", "key:"}, {"--lane-by", "field:x"}, {"--lane-by", ""},
		{"--max-bytes", "4095KiB"}, {"--retain", "-1s"}, {"--flush-age", "-1s"}, {"--max-attempts", "-1"}, {"--dead-limit", "0"},
	} {
		if _, err := parsed(args...); classify(err) != codeUsage {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

func TestRoute(t *testing.T) {
	for by, want := range map[string]string{"round-robin": "round", "key:net": "field net", "key:a:b": "field a:b"} {
		r, err := parse(t, "--lane-by", by).route()
		if err != nil || r.String() != want {
			t.Errorf("%s: got %v, %v, want %s", by, r, err, want)
		}
	}
}

func TestPlace(t *testing.T) {
	if o := parse(t).outputs[0]; o.id != "walsink" || !strings.HasPrefix(o.state, ".walsink/file-") || o.name != "file" {
		t.Errorf("got %+v", o)
	}
	if o := parse(t, "--id", "mine", "--state", "here").outputs[0]; o.id != "mine" || o.state != "here" {
		t.Errorf("got %+v", o)
	}
	for _, id := range []string{".x", "a/b", "a b", "ä"} {
		if _, err := parsed("--id", id); classify(err) != codeUsage {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

func TestStateWithoutDestination(t *testing.T) {
	var f jobFlags
	cmd := &cobra.Command{}
	f.register(cmd, "to look at", placeKeys...)
	if err := cmd.Flags().Parse([]string{"--state", "here"}); err != nil {
		t.Fatal(err)
	}
	j, err := f.load()
	if err != nil || len(j.outputs) != 1 || j.outputs[0].state != "here" || j.outputs[0].to != "" {
		t.Errorf("got %+v, %v", j, err)
	}
}
