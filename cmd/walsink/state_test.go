package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// stateWith makes a state directory of one lane with three complete batches, of
// which one is committed.
func stateWith(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	l, err := wal.Open(dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lane, err := l.Lane("job/000")
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 3; n++ {
		for range 10 * n {
			if err := lane.Append(t.Context(), []byte("{\"a\":1}\n")); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := lane.Seal(n, []byte("p"), "file 1 ndjson", false); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Sync(), l.Complete(n, []byte("p"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Commit("job/000", 1); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs the command in this process.
func command(t *testing.T, args ...string) (code, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := run(args, strings.NewReader(""), &out, &errs)
	return c, out.String(), errs.String()
}

func TestStatus(t *testing.T) {
	dir := stateWith(t)
	c, out, errs := command(t, "status", "--state", dir, "--json")
	if c != codeOK {
		t.Fatalf("code %d: %s", c, errs)
	}
	var r stateReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Checkpoint != 3 || len(r.Lanes) != 1 || len(r.Damage) != 0 {
		t.Fatalf("got %+v", r)
	}
	if l := r.Lanes[0]; l.Lane != "job/000" || l.Committed != 1 || l.Batches != 2 || l.Records != 50 || l.Bytes != 400 {
		t.Errorf("got %+v", l)
	}
	c, out, _ = command(t, "status", "--state", dir)
	if c != codeOK || !strings.Contains(out, "checkpoint 3 complete") || !strings.Contains(out, "job/000") {
		t.Errorf("code %d: %s", c, out)
	}
}

// TestStatusWhileInUse names the process, which is this one.
func TestStatusWhileInUse(t *testing.T) {
	dir := stateWith(t)
	l, err := wal.Open(dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{"status", "verify"} {
		c, _, errs := command(t, name, "--state", dir)
		if c != codeInUse || !strings.Contains(errs, "process ") || !strings.Contains(errs, dir) {
			t.Errorf("%s: code %d: %s", name, c, errs)
		}
	}
}

func TestVerifyAndExport(t *testing.T) {
	dir := stateWith(t)
	c, out, errs := command(t, "verify", "--state", dir)
	if c != codeOK || !strings.Contains(out, "60 records in 3 batches, no damage") {
		t.Errorf("code %d: %s%s", c, out, errs)
	}
	c, out, errs = command(t, "verify", "--state", dir, "--export", "job/000:2")
	if c != codeOK || out != strings.Repeat("{\"a\":1}\n", 20) {
		t.Errorf("code %d: %q %s", c, out, errs)
	}
	if c, _, _ := command(t, "verify", "--state", dir, "--export", "job/000:9"); c != codeUsage {
		t.Errorf("a batch that is not there: code %d", c)
	}
}

func TestParseBatch(t *testing.T) {
	for text, want := range map[string]uint64{"a/b:7": 7, "a:b/c:12": 12} {
		lane, seq, err := parseBatch("export", text)
		if err != nil || seq != want || lane+":"+group(seq) != text {
			t.Errorf("%q: got %q, %d, %v", text, lane, seq, err)
		}
	}
	for _, text := range []string{"a/b", ":7", "a/b:", "a/b:x", "a/b:-1"} {
		if _, _, err := parseBatch("export", text); classify(err) != codeUsage {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPrintFinding(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, json: true}
	d := &wal.Damage{Generation: 2, Lane: "job/000", Seq: 3, Checkpoint: 4, Block: 0, Err: errors.New("bits")}
	if err := errors.Join(a.printFinding(d), a.printFinding(errors.New("unreadable"))); err != nil {
		t.Fatal(err)
	}
	want := `{"generation":2,"lane":"job/000","batch":3,"checkpoint":4,"block":0,"reason":"bits"}` + "\n" + `{"reason":"unreadable"}` + "\n"
	if out.String() != want {
		t.Errorf("got  %s\nwant %s", out.String(), want)
	}
}

func TestHaveState(t *testing.T) {
	dir := t.TempDir()
	if err := haveState(dir); classify(err) != codeUsage {
		t.Errorf("empty directory: %v", err)
	}
	if err := haveState(filepath.Join(dir, "none")); classify(err) != codeUsage {
		t.Errorf("no directory: %v", err)
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := haveState(path); classify(err) != codeState {
		t.Errorf("a file: %v", err)
	}
	if err := haveState(dir); classify(err) != codeUsage {
		t.Errorf("a directory with something else in it: %v", err)
	}
	if err := haveState(stateWith(t)); err != nil {
		t.Errorf("a state directory: %v", err)
	}
}

func TestPrintMarksAndAudit(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mark := sinks.LaneMark{LaneID: sinks.LaneID{Sink: "job", Lane: "000"}, Mark: sinks.Mark{Fence: 2, Seq: 7, Checkpoint: 9, Records: 12345, UpdatedAt: at}}
	row := sinks.Audit{Batch: record.Batch{Seq: 7, Checkpoint: 9, Records: 45, Bytes: 900}, Dead: 1, FlushedAt: at}
	rows := func(yield func(sinks.Audit, error) bool) {
		_ = yield(row, nil) && yield(sinks.Audit{}, errors.New("cut off"))
	}
	if err := a.printMarks("job", []sinks.LaneMark{mark}); err != nil {
		t.Fatal(err)
	}
	if err := a.printAudit(rows); err == nil || err.Error() != "cut off" {
		t.Errorf("audit: %v", err)
	}
	if err := a.printMarks("none", nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"job/000", "12,345", "2026-01-02T03:04:05Z", "900", "no ledger of sink id none"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
