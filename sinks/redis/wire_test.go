package redis

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// commandsOf decodes a record.
func commandsOf(rec []byte) ([]Command, error) {
	var v view
	if err := v.parse(string(rec)); err != nil {
		return nil, err
	}
	var cmds []Command
	for _, args := range v.commands() {
		cmds = append(cmds, slices.Clone(Command(args)))
	}
	return cmds, nil
}

func mustRecord(t testing.TB, cmds ...Command) []byte {
	t.Helper()
	rec, err := AppendCommands(nil, cmds...)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRecordRoundTrip(t *testing.T) {
	many := Command{"DEL"}
	for i := range MaxArgs - 1 {
		many = append(many, fmt.Sprint(i))
	}
	for _, cmds := range [][]Command{
		{{"SET", "k", "v"}},
		{{"SET", "", ""}},
		{{"SET", "\x00\xff\r\n{}", strings.Repeat("x", 100_000)}},
		{{"INCR", "a"}, {"HSET", "h", "f", "v"}, {"XADD", "s", "*", "f", "v"}},
		{many},
		{{"JSON.SET", "d", "$", "{}"}},
	} {
		rec := mustRecord(t, cmds...)
		got, err := commandsOf(rec)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(cmds) {
			t.Errorf("%.80q came back as %.80q, %v", cmds, got, err)
		}
	}
}

// TestRecordGolden keeps the bytes of version 1.
func TestRecordGolden(t *testing.T) {
	got := mustRecord(t, Command{"set", "key", strings.Repeat("v", 128)}, Command{"INCR", "n"})
	want := "\x01\x02" + "\x03\x03SET\x03key\x80\x01" + strings.Repeat("v", 128) + "\x02\x04INCR\x01n"
	if string(got) != want {
		t.Errorf("record %q, want %q", got, want)
	}
}

func TestAppendKeepsDst(t *testing.T) {
	dst := append(make([]byte, 0, 1000), "before"...)
	for _, cmds := range [][]Command{nil, {{}}, {{"FLUSHALL"}}, {{"SET"}}, {{"SET", "a", "b"}, {"KEYS", "*"}}, {make(Command, MaxArgs+1)}} {
		out, err := AppendCommands(dst, cmds...)
		if !errors.Is(err, ErrCommand) || string(out) != "before" {
			t.Errorf("%.40q: %q, %v", cmds, out, err)
		}
	}
	if out, err := AppendCommands(dst, make([]Command, MaxCommands+1)...); err == nil || string(out) != "before" {
		t.Errorf("too many commands: %v", err)
	}
	if out, err := AppendCommand(dst, "GET", "k"); err == nil || string(out) != "before" {
		t.Errorf("a read: %q, %v", out, err)
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 1000)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := AppendCommand(buf, "HSET", "some key", "field", "value"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRecordEveryPrefix and bit flips: nothing but a record is a record, and what
// is one is written in one way only.
func TestRecordDamage(t *testing.T) {
	rec := mustRecord(t, Command{"SET", "key", strings.Repeat("v", 200)}, Command{"ZUNIONSTORE", "d", "2", "a", "b"})
	for i := range rec {
		if _, err := commandsOf(rec[:i]); !errors.Is(err, ErrRecord) && !errors.Is(err, ErrCommand) {
			t.Errorf("prefix of %d bytes: %v", i, err)
		}
		for bit := range 8 {
			flipped := bytes.Clone(rec)
			flipped[i] ^= 1 << bit
			checkCanonical(t, flipped)
		}
	}
	if _, err := commandsOf(append(bytes.Clone(rec), 0)); !errors.Is(err, ErrRecord) {
		t.Errorf("a byte behind it: %v", err)
	}
	for _, s := range []string{"", "\x00", "\x01\x00", "\x02\x01\x02\x04INCR\x01n", "\x01\x81\x00\x02\x04INCR\x01n", "\x01\x01\x02\x04incr\x01n", "\x01\x01\x00",
		"\x01\x01\xff\xff\xff\xff\xff\xff", "\x01\xff\xff\xff\xff\x0f"} {
		if cmds, err := commandsOf([]byte(s)); err == nil {
			t.Errorf("%q is a record: %q", s, cmds)
		}
	}
}

// checkCanonical demands that bytes that decode are what would be encoded.
func checkCanonical(t *testing.T, rec []byte) {
	t.Helper()
	cmds, err := commandsOf(rec)
	if err != nil {
		return
	}
	again, err := AppendCommands(nil, cmds...)
	if err != nil || !bytes.Equal(again, rec) {
		t.Errorf("%q decodes to %q, which encodes to %q, %v", rec, cmds, again, err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(mustRecord(f, Command{"SET", "k", "v"}))
	f.Add(mustRecord(f, Command{"INCR", "k"}, Command{"LMPOP", "2", "a", "b", "LEFT"}, Command{"SORT", "a", "STORE", "b"}))
	f.Add([]byte("\x01\x01\x02\x04INCR\x01n"))
	f.Fuzz(func(t *testing.T, rec []byte) {
		checkCanonical(t, rec)
		var v view
		if v.parse(string(rec)) != nil {
			return
		}
		for spec, args := range v.commands() {
			for range spec.keys(args) { // must not go out of bounds
			}
		}
	})
}

// TestRefusedCommandIsForgotten: what a view keeps of the command before does not come
// from one that was refused.
func TestRefusedCommandIsForgotten(t *testing.T) {
	var v view
	good, bad := mustRecord(t, Command{"SET", "k", "v"}), "\x01\x01\x02\x03GET\x01k"
	for _, refused := range []string{"\x01\x01\x02\x00\x010", bad, bad} {
		if err := v.parse(refused); err == nil {
			t.Errorf("%q is a record", refused)
		}
		if err := v.parse(string(good)); err != nil {
			t.Error(err)
		}
		for spec, args := range v.commands() {
			if n := len(slices.Collect(spec.keys(args))); n != 1 {
				t.Errorf("after %q: %d keys of %q, want 1", refused, n, args)
			}
		}
	}
}

func TestValidateAllocatesNothing(t *testing.T) {
	s := &Sink{opts: Options{Prefix: "walsink:"}, control: &client{}}
	rec, err := AppendCommands(nil, Command{"HSET", "quake:1", "mag", "2.5"}, Command{"INCRBY", "n", "1"})
	if err != nil {
		t.Fatal(err)
	}
	v := new(view)
	if n := testing.AllocsPerRun(100, func() {
		err := s.validate(v, unsafe.String(unsafe.SliceData(rec), len(rec)))
		if v.forget(); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations per record in a view that is used again", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Validate(rec); err != nil {
			t.Fatal(err)
		}
	}); n > 0 && !raceEnabled { // below the race detector sync.Pool forgets a quarter of what it is given
		t.Errorf("%v allocations per record", n)
	}
	own, err := AppendCommands(nil, Command{"DEL", "walsink:{a/b}"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(own); err == nil {
		t.Error("a record that touches the ledger passes")
	}
	s.control.cluster = true
	spread, err := AppendCommands(nil, Command{"SET", "a", "1"}, Command{"SET", "b", "1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(spread); err == nil {
		t.Error("a record over two slots passes in a cluster")
	}
}
