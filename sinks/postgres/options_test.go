package postgres

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

func TestOptions(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, o := range map[string]Options{
		"no table": {}, "NUL": {Table: "a\x00"}, "long table": {Table: long}, "long schema": {Table: "t", Schema: long},
		"long ledger": {Table: "t", Ledger: long}, "column twice": {Table: "t", Columns: []string{"a", "a"}},
		"empty column": {Table: "t", Columns: []string{""}}, "reserved": {Table: "t", Columns: []string{ordinal}},
		"upsert without key": {Table: "t", Mode: Upsert}, "key without upsert": {Table: "t", Key: []string{"a"}},
		"tombstone without upsert": {Table: "t", Tombstone: "d"}, "statement without definition": {Mode: Statement, Statement: "select"},
		"definition without statement": {Mode: Statement, Define: []Column{{"a", "int"}}}, "no type": {Table: "t", Create: true, Define: []Column{{"a", " "}}},
		"statement with table":      {Mode: Statement, Statement: "select", Define: []Column{{"a", "int"}}, Table: "t"},
		"create without definition": {Table: "t", Create: true}, "unknown mode": {Table: "t", Mode: 9}, "statement in insert": {Table: "t", Statement: "x"},
		"negative": {Table: "t", StepBytes: -1}, "many columns": {Table: "t", Columns: make([]string, 1601)},
	} {
		if _, err := o.withDefaults(); err == nil || !strings.HasPrefix(err.Error(), "options: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	o, err := Options{Table: "t"}.withDefaults()
	if err != nil || o.Ledger != DefaultLedger || o.AuditRows != DefaultAuditRows || o.StepBytes != DefaultStepBytes || o.MaxRecord != record.MaxRecord {
		t.Errorf("%+v, %v", o, err)
	}
}

// The ledger's tables are a format: a change of the script needs a new version.
func TestScriptIsVersionOne(t *testing.T) {
	golden := filepath.Join("testdata", "ledger-1.sql")
	got := Script("", "app \"role\"")
	if os.Getenv("WALSINK_UPDATE") != "" {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("the script has changed (%v):\n%s", err, got)
	}
	if s := Script("my schema", ""); strings.Contains(s, "grant") || !strings.Contains(s, `"my schema"."lane"`) {
		t.Errorf("script %s", s)
	}
}

func TestNumbersOverTheLedgersLimit(t *testing.T) {
	l := newLedger("w")
	id := sinks.LaneID{Sink: "s", Lane: "l"}
	for _, m := range []sinks.Mark{{Seq: math.MaxUint64}, {Checkpoint: 1 << 63}, {Records: 1 << 63}} {
		if _, err := l.move(id, 1, id.Genesis(), m, &table{}, ""); !errors.Is(err, errRefused) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if _, err := l.insertAudit(id, []sinks.Audit{{Batch: record.Batch{Checkpoint: 1 << 63}}}); !errors.Is(err, errRefused) {
		t.Errorf("audit: %v", err)
	}
	step := &sinks.Step{ID: id, Batches: []sinks.Audit{{}}}
	if _, _, err := l.insertDead(step, []sinks.DeadLetter{{Checkpoint: 1 << 63}}); !errors.Is(err, errRefused) {
		t.Errorf("dead letter: %v", err)
	}
	if _, _, err := l.insertDead(step, []sinks.DeadLetter{{Reject: sinks.Reject{Batch: 1}}}); !errors.Is(err, errRefused) {
		t.Errorf("dead letter of no batch: %v", err)
	}
	big := sinks.DeadLetter{Record: make([]byte, deadBytes-64)}
	if _, rest, err := l.insertDead(step, []sinks.DeadLetter{big, big, big}); err != nil || len(rest) != 2 {
		t.Errorf("%d left, %v", len(rest), err)
	}
}

// FuzzScanEntry feeds rows that a server could give.
func FuzzScanEntry(f *testing.F) {
	id := sinks.LaneID{Sink: "s", Lane: "l"}
	g := id.Genesis().String()
	f.Add("1", "0", g, g, "0", "", "", "0", "0", "0", "0", "t", "l")
	f.Add("1", "0", g, g, "0", "zz", "{", "-1", "0", "x", "0", "f", "l")
	f.Fuzz(func(t *testing.T, a, b, c, d, e, pos, partial, g, h, i, j, k, l string) {
		row := make([][]byte, 0, 13)
		for _, s := range []string{a, b, c, d, e, pos, partial, g, h, i, j, k, l} {
			row = append(row, []byte(s))
		}
		got, err := scanEntry(row)
		if err != nil {
			if !errors.Is(err, errRefused) {
				t.Errorf("error %v", err)
			}
			return
		}
		if got.mark.Tip().String() != d && !strings.EqualFold(got.mark.Tip().String(), d) {
			t.Errorf("entry %+v with tip %s", got, d)
		}
	})
}

func runs(rs ...sinks.Run) iter.Seq2[sinks.Run, error] {
	return func(yield func(sinks.Run, error) bool) {
		for _, r := range rs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func lines(texts ...string) (recs [][]byte) {
	for _, s := range texts {
		recs = append(recs, []byte(s))
	}
	return recs
}

func TestSourceLocatesLines(t *testing.T) {
	s := newSource(runs(
		sinks.Run{Batch: 0, First: 0, Block: record.BlockOf(lines("a\n", "b\n")...)},
		sinks.Run{Batch: 0, First: 5, Block: record.BlockOf(lines("c\n")...)},
		sinks.Run{Batch: 1, First: 0, Block: record.BlockOf()},
		sinks.Run{Batch: 2, First: 1, Block: record.BlockOf(lines("d\n", "e\n")...)},
	), liner{limit: 100}, false)
	data, err := io.ReadAll(s)
	if err != nil || string(data) != "a\nb\nc\nd\ne\n" {
		t.Fatalf("%q, %v", data, err)
	}
	for line, want := range map[uint64]string{1: "0/0", 2: "0/1", 3: "0/5", 4: "2/1", 5: "2/2", 0: "", 6: "", math.MaxUint64: ""} {
		batch, number, ok := s.locate(line)
		if got := fmt.Sprintf("%d/%d", batch, number); ok != (want != "") || ok && got != want {
			t.Errorf("line %d is %s, want %q", line, got, want)
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if n, err := s.Read(make([]byte, 10)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("read after close: %d, %v", n, err)
	}
	if err := s.close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestSourcePassesTheLogsError(t *testing.T) {
	damage := errors.New("damage")
	s := newSource(func(yield func(sinks.Run, error) bool) {
		if yield(sinks.Run{Block: record.BlockOf(lines("a\n")...)}, nil) {
			yield(sinks.Run{}, damage)
		}
	}, liner{limit: 100}, false)
	if data, err := io.ReadAll(s); string(data) != "a\n" || !errors.Is(err, damage) {
		t.Errorf("%q, %v", data, err)
	}
	if err := s.close(); !errors.Is(err, damage) {
		t.Errorf("close: %v", err)
	}
}

func TestSourceStopsEarly(t *testing.T) {
	ended := false
	s := newSource(func(yield func(sinks.Run, error) bool) {
		defer func() { ended = true }()
		for yield(sinks.Run{Block: record.BlockOf(lines("a\n")...)}, nil) {
		}
	}, liner{limit: 100}, false)
	if _, err := s.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil || !ended {
		t.Errorf("close: %v, log released: %v", err, ended)
	}
}

func TestP39LongLinesAreRefusedByTheSource(t *testing.T) {
	for n, ok := range map[int]bool{98: true, 99: true, 100: false} {
		s := newSource(runs(sinks.Run{First: 3, Block: record.BlockOf([]byte(strings.Repeat("a", n) + "\n"))}), liner{limit: 100}, false)
		_, err := io.ReadAll(s)
		_ = s.close()
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", n+1, err)
		}
		if e, is := errors.AsType[*sinks.Error](err); !ok && (!is || e.Kind != sinks.Poison || e.Bad[0].Number != 3) {
			t.Errorf("error %v", err)
		}
	}
}

func TestInfer(t *testing.T) {
	seq := func(texts ...string) iter.Seq[[]byte] {
		return func(yield func([]byte) bool) {
			for _, s := range texts {
				if !yield([]byte(s)) {
					return
				}
			}
		}
	}
	got, err := Infer(seq(
		`{"i":1,"f":1.5,"d":"2024-02-29","t":"2024-02-29T01:02:03Z","l":"2024-02-29 01:02:03","b":true,"s":"x","o":{},"n":null,"u":"67e55044-10b1-426f-9247-bb680e5fe0c8","m":1,"x":1}`,
		`{"i":-9,"f":2,"d":null,"b":false,"s":"2024-02-29","o":[1],"m":"a","p":1.2345678901234567890,"x":null,"big":9223372036854775808}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	want := "[{i bigint} {f double precision} {d date} {t timestamptz} {l timestamp} {b boolean} {s text} {o jsonb} {n text} {u uuid} {m text} {x bigint} {p numeric} {big numeric}]"
	if fmt.Sprint(got) != want {
		t.Errorf("columns %v\nwant %s", got, want)
	}
	for _, bad := range []string{`[]`, `{"a":}`, `{"a" 1}`, `{"a":1`, `{"":1}`, `{"` + strings.Repeat("x", 64) + `":1}`, `{`, `{"a":1 "b":2}`} {
		if _, err := Infer(seq(bad)); !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := Infer(seq(`{}`)); err == nil {
		t.Error("no field, no error")
	}
}
