package file

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

var update = flag.Bool("update", false, "write the golden files")

func sampleManifest() *manifest {
	at := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	step := stepAfter(orders, sinks.Mark{Chain: orders.Genesis()}, lines(7, "a", "b"), lines(9, "c"))
	m := &manifest{
		Number: 12, Lane: orders, Prev: orders.Genesis(), Mark: step.Next, Step: 12, Base: 12,
		Parts: []part{
			{Name: "orders+main+00000000000000000007-9+00000.ndjson", Bucket: "dt=2024-05-01", Staged: "1-A-1.part", Bytes: 6, Sum: "00ff", Records: 3},
			{Name: "orders+main+00000000000000000007-9+00000.ndjson", Dead: true, Staged: "1-A-2.part", Bytes: 60, Sum: "01ff", Records: 1},
		},
		Audit: step.Batches,
	}
	m.Mark.Fence, m.Mark.UpdatedAt = 3, at
	for i := range m.Audit {
		m.Audit[i].FlushedAt = at
	}
	return m
}

func TestManifestRoundTrip(t *testing.T) {
	want := sampleManifest()
	raw, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeManifest(raw)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
}

// The bytes of format 1 do not change, and a later build reads them.
func TestManifestGolden(t *testing.T) {
	raw, err := sampleManifest().encode()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("testdata", "manifest-1")
	if *update {
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(name)
	if err != nil || string(golden) != string(raw) {
		t.Errorf("%v: encode gives\n%s\nwant\n%s", err, raw, golden)
	}
	m, err := decodeManifest(golden)
	if err != nil || m.Mark.Checkpoint != 9 || len(m.Parts) != 2 || len(m.Audit) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestManifestDamage(t *testing.T) {
	raw, err := sampleManifest().encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		if m, err := decodeManifest(raw[:i]); !errors.Is(err, errDamaged) {
			t.Fatalf("the first %d bytes: %+v, %v", i, m, err)
		}
		for bit := range 8 {
			bad := slices.Clone(raw)
			bad[i] ^= 1 << bit
			if m, err := decodeManifest(bad); !errors.Is(err, errDamaged) {
				t.Fatalf("byte %d bit %d flipped: %+v, %v", i, bit, m, err)
			}
		}
	}
}

// A manifest with the right checksum is not trusted with paths or numbers.
func TestManifestIsChecked(t *testing.T) {
	for what, change := range map[string]func(*manifest){
		"number 0":          func(m *manifest) { m.Number = 0 },
		"base 0":            func(m *manifest) { m.Base = 0 },
		"base above number": func(m *manifest) { m.Base = 13 },
		"step above number": func(m *manifest) { m.Step = 13 },
		"name with path":    func(m *manifest) { m.Parts[0].Name = "../x" },
		"absolute name":     func(m *manifest) { m.Parts[0].Name = "/x" },
		"no name":           func(m *manifest) { m.Parts[0].Name = "" },
		"hidden name":       func(m *manifest) { m.Parts[0].Name = hidden },
		"staged with path":  func(m *manifest) { m.Parts[1].Staged = "../log/1" },
		"bucket with path":  func(m *manifest) { m.Parts[0].Bucket = "../x" },
	} {
		m := sampleManifest()
		change(m)
		raw, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(raw); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	raw, err := sampleManifest().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw[headerSize:])
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"number":1,"base":1,"parts":[{"name":"a","staged":"b"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		// The fuzzer does not find checksums; it gets right ones.
		raw := fmt.Appendf(nil, "%s%08x %08x\n%s", manifestHeader, crc32.Checksum(body, castagnoli), len(body), body)
		m, err := decodeManifest(raw)
		if err != nil {
			if !errors.Is(err, errDamaged) {
				t.Fatal(err)
			}
			return
		}
		for _, p := range m.Parts {
			if dir := p.path("lane"); !filepath.IsLocal(dir) || !filepath.IsLocal(p.Staged) {
				t.Fatalf("path %q, staged %q", dir, p.Staged)
			}
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(again); err != nil {
			t.Fatalf("%v: %q", err, again)
		}
	})
}

func FuzzManifestBytes(f *testing.F) {
	raw, err := sampleManifest().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := decodeManifest(raw); err != nil && !errors.Is(err, errDamaged) {
			t.Fatal(err)
		}
	})
}

func TestAuditAndMarks(t *testing.T) {
	dir := scratch(t)
	opts := Options{KeepAudit: 10}
	src := newSource(3 * foldEvery)
	if err := src.run(dir, opts, nil); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, opts)
	rows := auditOf(t, s, 0)
	last := uint64(len(src))
	if len(rows) < 10 || rows[len(rows)-1].Seq != last || rows[len(rows)-1].FlushedAt.IsZero() {
		t.Fatalf("%d rows, the last %+v", len(rows), rows[len(rows)-1])
	}
	if got := auditOf(t, s, last-3); len(got) != 3 || got[0].Seq != last-2 || string(got[0].Position) != fmt.Sprintf("after %d", last-2) {
		t.Errorf("rows after %d: %+v", last-3, got)
	}
	if got := auditOf(t, s, last); len(got) != 0 {
		t.Errorf("rows after the last: %+v", got)
	}
	for _, err := range s.Audit(t.Context(), sinks.LaneID{Sink: "..", Lane: "x"}, 0) {
		wantKind(t, err, sinks.Permanent)
	}
	for range s.Audit(t.Context(), sinks.LaneID{Sink: "other", Lane: "x"}, 0) {
		t.Error("a row of a lane that is not there")
	}
	if _, err := s.Marks(t.Context(), "../x"); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("marks: %v", err)
	}
	if marks, err := s.Marks(t.Context(), "other"); err != nil || len(marks) != 0 {
		t.Errorf("marks: %v, %v", marks, err)
	}
}

// A reader of the ledger does not see rows missing while the owner folds them.
func TestAuditWhileTheOwnerFolds(t *testing.T) {
	dir := scratch(t)
	src := newSource(6 * foldEvery)
	if err := src[:1].run(dir, Options{}, nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- src.run(dir, Options{}, nil) }()
	s := open(t, dir, Options{})
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
		rows := auditOf(t, s, 0)
		for i, row := range rows {
			if row.Seq != uint64(i+1) {
				t.Fatalf("row %d is of batch %d", i, row.Seq)
			}
		}
	}
}

func TestStrayNumberBelowTheLogIsIgnored(t *testing.T) {
	dir := scratch(t)
	src := newSource(2*foldEvery + 5)
	if err := src.run(dir, Options{}, nil); err != nil {
		t.Fatal(err)
	}
	log := filepath.Dir(manifests(t, dir)[0])
	if err := os.WriteFile(filepath.Join(log, fmt.Sprintf("%020d", 3)), []byte("stray"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := acquire(t, dir, Options{})
	if o.mark.Seq != uint64(len(src)) || len(auditOf(t, o.sink, 0)) != len(src) {
		t.Errorf("mark %+v, %d rows", o.mark, len(auditOf(t, o.sink, 0)))
	}
	t.Run("foreign name", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(log, "12.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := open(t, dir, Options{}).Acquire(t.Context(), orders)
		if wantKind(t, err, sinks.Permanent); !strings.Contains(err.Error(), "12.json") {
			t.Error(err)
		}
	})
}

func TestDeadLettersComeInTheSameStep(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{Compress: "gzip"})
	step := stepAfter(orders, o.mark, lines(4, "good"))
	step.Dead = []sinks.DeadLetter{{
		Reject: sinks.Reject{Number: 1, Field: "x", Code: "42", Reason: "no"}, Checkpoint: 4, Record: []byte("\xffbad"),
	}}
	step.Next.Dead++
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "rename" && strings.Contains(name, "/dead/") {
			return errors.New("crash")
		}
		return do()
	}
	if _, err := o.lane.Flush(t.Context(), step); sinks.KindOf(err) != sinks.Ambiguous {
		t.Fatal(err)
	}
	if m := acquire(t, dir, Options{}).mark; m.Dead != 1 {
		t.Errorf("mark %+v", m)
	}
	name := filepath.Join(dir, laneDir("orders", "main"), "dead", "orders+main+00000000000000000004+00000.ndjson")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var d deadLetter
	if err := json.Unmarshal(text, &d); err != nil || string(d.Record) != "\xffbad" || d.Number != 1 || d.Checkpoint != 4 || d.Reason != "no" {
		t.Errorf("%s: %+v, %v", text, d, err)
	}
	wantConcat(t, dir, "good\n")
}

func TestMarkKeepsAPartOfABatch(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	step := stepAfter(orders, o.mark, lines(1, "a"))
	step.Next = o.mark
	step.Next.Partial = &sinks.Partial{Batch: record.Batch{Seq: 1, Checkpoint: 1, Prev: o.mark.Chain}, Done: 1}
	if _, err := o.lane.Flush(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	m := acquire(t, dir, Options{}).mark
	if m.Tip() != step.Next.Tip() || len(auditOf(t, o.sink, 0)) != 0 {
		t.Errorf("mark %+v, audit %v", m, auditOf(t, o.sink, 0))
	}
}
