package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// unpack reads MessagePack values that are true, numbers or strings, by the forms that
// the specification gives.
func unpack(b []byte) ([]any, error) {
	var items []any
	for len(b) > 0 {
		size, skip := 0, 1
		switch c := b[0]; {
		case c == 0xc3:
			items = append(items, true)
		case c == 0xce:
			items, skip = append(items, int(binary.BigEndian.Uint32(b[1:]))), 5
		case c>>5 == 5:
			size = int(c & 31)
			items = append(items, string(b[1:1+size]))
		case c == 0xd9:
			size, skip = int(b[1]), 2
			items = append(items, string(b[2:2+size]))
		default:
			return nil, fmt.Errorf("form %#x", c)
		}
		b = b[skip+size:]
	}
	return items, nil
}

func TestPack(t *testing.T) {
	var p pack
	p.reset()
	want := []any{}
	for _, n := range []int{0, 1, 31, 32, 100, 127, shortItem, shortItem + 1, 1 << 20} {
		s := strings.Repeat("x", n)
		if took := p.text(s); took != (n <= shortItem) {
			t.Errorf("text of %d bytes packed: %v", n, took)
		} else if took {
			want = append(want, s)
		}
	}
	p.long()
	place := p.number(7)
	p.number(1 << 31)
	p.set(place, 300)
	want = append(want, true, 300, 1<<31)
	if got, err := unpack(p.buf); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	p.reset()
	if got, err := unpack(p.buf); err != nil || len(got) != 0 {
		t.Errorf("after reset: %v, %v", got, err)
	}
}

func TestPackIsBounded(t *testing.T) {
	var p pack
	p.reset()
	for p.text(strings.Repeat("x", shortItem)) {
	}
	if n := len(p.buf); n < packBytes || n > 1<<20 {
		t.Errorf("a full pack has %d bytes", n)
	}
}

// TestItems shows what becomes of commands.
func TestItems(t *testing.T) {
	var cmds [][]Command
	one := func(args ...string) { cmds = append(cmds, []Command{args}) }
	for i := range 12 {
		one("HSET", fmt.Sprint("k", i), "name", "v")
	}
	long := strings.Repeat("x", shortItem+1)
	one("HSET", "k12", "name", "w")
	one("HSET", "k13", "name", long)
	one("HSET", "k14", "other", "w")
	one("HSET", "k15", "name", "w")
	for i := range 10 {
		one("INCRBY", fmt.Sprint("n", i), "1")
	}
	cmds = append(cmds, []Command{{"DEL", "a"}, {"RPUSH", "l", "x"}})
	for i := range 10 {
		one("SET", fmt.Sprint("s", i), long)
	}

	got, args := cutItems(t, cmds)
	want := []any{"C", 8, 0, 4}
	for i := range 8 {
		want = append(want, "HSET", fmt.Sprint("k", i), "name", "v")
	}
	want = append(want, "H", 6, 1, 4, "HSET", "name", "k8", "v", "k9", "v", "k10", "v", "k11", "v", "k12", "w", "k13", true)
	want = append(want, "C", 2, 0, 4, "HSET", "k14", "other", "w", "HSET", "k15", "name", "w")
	want = append(want, "C", 8, 0, 3)
	for i := range 8 {
		want = append(want, "INCRBY", fmt.Sprint("n", i), "1")
	}
	want = append(want, "H", 2, 0, 3, "INCRBY", "1", "n8", "n9")
	want = append(want, "M", 2, 2, "DEL", "a", 3, "RPUSH", "l", "x")
	want = append(want, "C", 8, 8, 3)
	for i := range 8 {
		want = append(want, "SET", fmt.Sprint("s", i), true)
	}
	want = append(want, "S", 2, 2, "s8", true, "s9", true)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for _, a := range args {
		if a != long {
			t.Errorf("argument %.40q, want the long value", a)
		}
	}
	if len(args) != 11 {
		t.Errorf("%d long arguments, want 11", len(args))
	}
}

// TestItemsBehindAFullPack shows that of what comes when a pack is full everything is
// long, but not what the script is to do.
func TestItemsBehindAFullPack(t *testing.T) {
	var cmds [][]Command
	for i := range 6000 {
		cmds = append(cmds, []Command{{"RPUSH", fmt.Sprint("list", i), strings.Repeat(fmt.Sprint(i%10), 100)}})
	}
	cmds = append(cmds, []Command{{"HINCRBY", "h", "n", "1"}}, []Command{{"DEL", "a"}, {"DEL", "b"}}, []Command{{"DEL", "c"}})
	got, _ := cutItems(t, cmds)
	want := []any{"C", 1, 4, 4, true, true, true, true, "M", 2, 2, true, true, 2, true, true, "C", 1, 2, 2, true, true}
	if tail := got[len(got)-len(want):]; !reflect.DeepEqual(tail, want) {
		t.Errorf("the last items are %v, want %v", tail, want)
	}
}

// TestItemsExpand expands items of random series as the script does.
func TestItemsExpand(t *testing.T) {
	check := func(series []uint8) bool {
		var cmds [][]Command
		for i, s := range series {
			for j := range int(s % 13) {
				cmds = append(cmds, []Command{{"HSET", fmt.Sprint("k", j%(1+i%3)), fmt.Sprint("f", s%2), fmt.Sprint("v", j/9)}})
			}
			cmd := Command{[]string{"DEL", "LPUSH"}[s%2], "k", "l", "m"}
			cmds = append(cmds, []Command{cmd[:3+s%2]})
		}
		items, _ := cutItems(t, cmds)
		return reflect.DeepEqual(expand(items), cmds)
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

// expand turns items of runs back into records.
func expand(items []any) (recs [][]Command) {
	next := func() (item any) {
		item, items = items[0], items[1:]
		return item
	}
	for len(items) > 0 {
		op, n, _, argc := next(), next().(int), next(), next().(int)
		form := make([]any, argc)
		if op == "H" {
			for i := 0; i < argc; i += 2 {
				form[i] = next()
			}
		}
		for range n {
			var cmd Command
			for _, a := range form {
				if a == nil {
					a = next()
				}
				cmd = append(cmd, a.(string))
			}
			recs = append(recs, []Command{cmd})
		}
	}
	return recs
}

// cutItems returns the items of a chunk with these records, between the ones that
// begin and end the batch, and the long arguments.
func cutItems(t *testing.T, cmds [][]Command) (items, long []any) {
	t.Helper()
	var recs [][]byte
	for _, c := range cmds {
		r, err := AppendCommands(nil, c...)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	block := record.BlockOf(recs...)
	s := &Sink{opts: Options{Prefix: "walsink:"}, scripts: newScripts()}
	l := &lane{base: s.newBase(sinks.LaneID{Sink: "s", Lane: "0"})}
	l.pace.units = 1 << 20
	b := record.Batch{Seq: 1, Checkpoint: 1, Records: uint64(len(recs)), Format: Format}
	c := &l.cut
	c.begin(l, &sinks.Step{Batches: []sinks.Audit{{Batch: b}}, Records: int64(len(recs)), Next: sinks.Mark{Records: b.Records}})
	if err := errors.Join(c.take(sinks.Run{Block: block}), c.end()); err != nil {
		t.Fatal(err)
	}
	c.close()
	if len(c.chunks) != 1 {
		t.Fatalf("%d chunks, want 1", len(c.chunks))
	}
	args := c.chunks[0].args
	packed, ok := args[itemsArg].([]byte)
	if !ok {
		t.Fatalf("argument %d is %T", itemsArg, args[itemsArg])
	}
	all, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	if all[0] != "B" || all[len(all)-3] != "E" {
		t.Fatalf("items %v do not begin and end a batch", all)
	}
	for _, a := range args[itemsArg+1:] {
		long = append(long, *a.(*string))
	}
	for i := range all[:5] { // what begins the batch may be long
		if all[i] == true {
			long = long[1:]
		}
	}
	for _, a := range all[len(all)-2:] {
		if a == true {
			long = long[:len(long)-1]
		}
	}
	return all[5 : len(all)-3], long
}
