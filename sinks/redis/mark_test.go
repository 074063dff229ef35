package redis

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

var testID = sinks.LaneID{Sink: "s", Lane: "l"}

// fieldsOf is a mark as a server holds it.
func fieldsOf(t testing.TB) map[string]string {
	t.Helper()
	batch := record.Batch{Seq: 1, Checkpoint: 7, Prev: testID.Genesis(), Records: 10, Bytes: 100, Position: []byte("p\x00")}
	next := record.Batch{Seq: 2, Checkpoint: 8, Prev: batch.Chain(), Records: 5}
	h, err := headJSON(batch.Head())
	if err != nil {
		t.Fatal(err)
	}
	p, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"v": "1", "f": "3", "o": "OWNER", "s": "2", "c": batch.Chain().String(), "h": string(h), "p": string(p), "b": next.Chain().String(),
		"d": "4", "u": "0", "y": "1,3", "z": "2", "n": "12", "x": "2", "t": "2026-01-02T03:04:05.678Z",
	}
}

func flat(m map[string]string) []any {
	var list []any
	for k, v := range m {
		list = append(list, k, v)
	}
	return list
}

func TestDecodeMark(t *testing.T) {
	m, _, err := decodeMark(testID, flat(fieldsOf(t)))
	if err != nil {
		t.Fatal(err)
	}
	if m.Fence != 3 || m.Seq != 1 || m.Checkpoint != 7 || string(m.Position) != "p\x00" || m.Records != 12 || m.Dead != 2 || m.UpdatedAt.IsZero() {
		t.Errorf("mark %+v", m)
	}
	if p := m.Partial; p == nil || p.Done != 4 || p.Batch.Seq != 2 || len(p.Dead) != 2 || p.Dead[1] != 3 {
		t.Errorf("partial %+v", m.Partial)
	}
	if tip := tipOf(m); tip.done != 4 || tip.part != m.Partial.Batch.Chain().String() || tip.chain != m.Chain.String() {
		t.Errorf("tip %+v", tip)
	}
	fresh, _, err := decodeMark(testID, flat(map[string]string{"v": "1", "f": "1", "c": testID.Genesis().String(), "n": "0", "x": "0"}))
	if err != nil || fresh.Tip() != testID.Genesis() || fresh.Partial != nil {
		t.Errorf("mark of a new lane %+v, %v", fresh, err)
	}
}

func TestDecodeMarkDamage(t *testing.T) {
	for name, change := range map[string]func(map[string]string){
		"version":          func(f map[string]string) { f["v"] = "2" },
		"no version":       func(f map[string]string) { delete(f, "v") },
		"head":             func(f map[string]string) { f["h"] = "{" },
		"another chain":    func(f map[string]string) { f["c"] = testID.Genesis().String() },
		"fence":            func(f map[string]string) { f["f"] = "-1" },
		"records":          func(f map[string]string) { f["n"] = "" },
		"partial":          func(f map[string]string) { f["p"] = "[]" },
		"another partial":  func(f map[string]string) { f["b"] = "" },
		"done":             func(f map[string]string) { f["d"] = "x" },
		"done beyond":      func(f map[string]string) { f["d"] = "6" },
		"dead":             func(f map[string]string) { f["y"] = "1,," },
		"chain of head":    func(f map[string]string) { f["h"] = `{"chain":"00"}` },
		"genesis, no head": func(f map[string]string) { f["h"] = "" },
	} {
		f := fieldsOf(t)
		change(f)
		if m, _, err := decodeMark(testID, flat(f)); !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrVersion) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func FuzzDecodeMark(f *testing.F) {
	for k, v := range fieldsOf(f) {
		f.Add(k, v)
		f.Add(k, v+"0")
	}
	f.Fuzz(func(t *testing.T, field, value string) {
		fields := fieldsOf(t)
		fields[field] = value
		m, got, err := decodeMark(testID, flat(fields))
		if err != nil {
			return
		}
		if !maps.Equal(got, fields) || m.Partial != nil && m.Partial.Done > m.Partial.Batch.Records {
			t.Fatalf("%+v", m)
		}
		m.Tip()
	})
}

func FuzzDecodeAudit(f *testing.F) {
	f.Add(`3:{"seq":1,"checkpoint":2,"records":5,"flushed_at":"2026-01-02T03:04:05Z"}`)
	f.Add(":")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := decodeAudit(text); err != nil && !errors.Is(err, record.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func FuzzSlotTable(f *testing.F) {
	f.Add("1,2,16383", "5", "1:2:3")
	f.Add("16384", "x", "1:2")
	f.Fuzz(func(t *testing.T, list, slot, entry string) {
		if _, err := parseSlots(list); err != nil && !errors.Is(err, record.ErrCorrupt) {
			t.Fatal(err)
		}
		table, err := parseTable(map[string]string{slot: entry})
		if err != nil && !errors.Is(err, record.ErrCorrupt) {
			t.Fatal(err)
		}
		for s, e := range table {
			again, err := parseTable(map[string]string{slot: e.String()})
			if err != nil || again[s] != e {
				t.Fatalf("%v: %v, %v", e, again, err)
			}
		}
	})
}
