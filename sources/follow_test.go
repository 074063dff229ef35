package sources

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A logWriter does to a file what programs and logrotate do. It stamps files with
// the time of the bubble, since the clock of the kernel is too coarse for a test
// that does not wait.
type logWriter struct {
	t     *testing.T
	path  string
	lines int
	half  string // the rest of a line of which a part is written

	rotated int // files that were moved away
}

func (w *logWriter) stamp(path string) {
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		w.t.Fatal(err)
	}
}

func (w *logWriter) write(s string) {
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := f.WriteString(s); err != nil {
		w.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // of the bubble
	w.stamp(w.path)
}

func (w *logWriter) line() string {
	w.lines++
	return fmt.Sprintf(`{"n":%d}`, w.lines-1)
}

func (w *logWriter) append(n int) {
	var b strings.Builder
	b.WriteString(w.half)
	w.half = ""
	for range n {
		b.WriteString(w.line() + "\n")
	}
	w.write(b.String())
}

// appendHalf leaves the last line unfinished.
func (w *logWriter) appendHalf() {
	w.append(1)
	s := w.line() + "\n"
	w.write(s[:4])
	w.half = s[4:]
}

// finish ends an unfinished line; a writer does so before its file is rotated.
func (w *logWriter) finish() {
	if w.half != "" {
		w.append(0)
	}
}

func (w *logWriter) shift() string {
	for i := w.rotated; i > 0; i-- {
		if err := os.Rename(fmt.Sprintf("%s.%d", w.path, i), fmt.Sprintf("%s.%d", w.path, i+1)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.rotated++
	return w.path + ".1"
}

func (w *logWriter) rename() {
	w.finish()
	if _, err := os.Stat(w.path); os.IsNotExist(err) {
		return
	}
	if err := os.Rename(w.path, w.shift()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *logWriter) truncate() {
	w.finish()
	err := os.Truncate(w.path, 0)
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	if err == nil {
		w.stamp(w.path)
	}
}

func (w *logWriter) copyTruncate() {
	w.finish()
	b, err := os.ReadFile(w.path)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	to := w.shift()
	writeFile(w.t, to, string(b))
	w.stamp(to)
	w.truncate()
}

// A followReader reads, remembers what was checkpointed, and can be killed.
type followReader struct {
	t         *testing.T
	open      func() Source
	s         Source
	position  []byte
	committed []string
	pending   []string
}

func (r *followReader) start() {
	r.s, r.pending = r.open(), nil
	if err := r.s.Open(r.t.Context(), r.position); err != nil {
		r.t.Fatal("open:", err)
	}
	if r.position == nil {
		r.checkpoint()
	}
}

func (r *followReader) checkpoint() {
	r.position = r.s.Position()
	r.committed = append(r.committed, r.pending...)
	r.pending = nil
}

func (r *followReader) kill() {
	if err := r.s.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.start()
}

// read takes what comes within d, and reports whether anything did.
func (r *followReader) read(limit int, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	recs, err := r.s.Read(ctx, limit)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.t.Fatal("read:", err)
	}
	for _, rec := range recs {
		r.pending = append(r.pending, string(rec))
	}
	return len(recs) > 0
}

func (r *followReader) drain() {
	for r.read(100, 300*time.Millisecond) {
	}
}

func (r *followReader) check(n int) {
	r.t.Helper()
	r.drain()
	r.checkpoint()
	count := map[string]int{}
	for _, rec := range r.committed {
		count[rec]++
	}
	for i := range n {
		if rec := fmt.Sprintf(`{"n":%d}`, i); count[rec] != 1 {
			r.t.Fatalf("line %d was read %d times", i, count[rec])
		}
	}
	if len(r.committed) != n {
		r.t.Fatalf("%d records of %d lines", len(r.committed), n)
	}
}

var followOptions = Options{Follow: true, Poll: 10 * time.Millisecond, Quiet: 50 * time.Millisecond, Logger: quiet()}

// follow runs f in a bubble with a writer and a reader of one path.
func follow(t *testing.T, f func(w *logWriter, r *followReader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "app.log")
		w := &logWriter{t: t, path: path}
		r := &followReader{t: t, open: func() Source { return NDJSON(path, followOptions) }}
		r.start()
		defer func() {
			if err := r.s.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(w, r)
		if !t.Failed() {
			w.finish()
			r.check(w.lines)
		}
	})
}

func TestFollow(t *testing.T) {
	both := func(name string, f func(w *logWriter, r *followReader, between func())) {
		t.Run(name, func(t *testing.T) { follow(t, func(w *logWriter, r *followReader) { f(w, r, func() {}) }) })
		t.Run(name+", killed", func(t *testing.T) {
			follow(t, func(w *logWriter, r *followReader) { f(w, r, r.kill) })
		})
	}
	both("appears", func(w *logWriter, r *followReader, between func()) {
		r.drain()
		between()
		w.append(3)
	})
	both("grows", func(w *logWriter, r *followReader, between func()) {
		for range 5 {
			w.append(3)
			r.drain()
			r.checkpoint()
			between()
		}
	})
	both("half a line", func(w *logWriter, r *followReader, between func()) {
		w.appendHalf()
		r.drain()
		r.checkpoint()
		between()
		r.drain()
		w.append(2)
	})
	both("renamed", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.read(2, time.Second)
		r.checkpoint()
		w.rename()
		w.append(4)
		between()
	})
	both("renamed before anything was read", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.kill()
		r.checkpoint()
		w.rename()
		w.append(4)
		between()
	})
	both("renamed three times unseen", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.read(2, time.Second)
		r.checkpoint()
		for range 3 {
			w.rename()
			w.append(4)
		}
		between()
	})
	both("renamed and nothing new", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.read(2, time.Second)
		r.checkpoint()
		w.rename()
		between()
		r.drain()
		r.checkpoint()
		between()
		w.append(1)
	})
	both("truncated", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.drain()
		r.checkpoint()
		w.truncate()
		between()
		r.drain()
		w.append(2)
	})
	both("truncated and grown beyond", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.drain()
		r.checkpoint()
		w.truncate()
		w.append(50)
		between()
	})
	both("copied and truncated", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.read(2, time.Second)
		r.checkpoint()
		w.copyTruncate()
		w.append(1)
		between()
	})
	both("copied and truncated twice", func(w *logWriter, r *followReader, between func()) {
		w.append(5)
		r.read(2, time.Second)
		r.checkpoint()
		w.copyTruncate()
		w.append(7)
		w.copyTruncate()
		w.append(30)
		between()
	})
}

// TestFollowOldWriter: a program may go on writing to the file that was renamed,
// for a while, and leave its last line without an end.
func TestFollowOldWriter(t *testing.T) {
	follow(t, func(w *logWriter, r *followReader) {
		w.append(2)
		r.drain()
		w.rename()
		if r.read(10, 30*time.Millisecond) { // less than Options.Quiet, and enough to see the rename
			t.Error("something to read")
		}
		old := *w
		old.path = w.path + ".1"
		old.append(1)
		w.lines = old.lines
		if !r.read(10, time.Second) {
			t.Error("late line not read")
		}
		old.write(old.line())
		w.lines = old.lines
		w.append(1)
	})
}

// TestFollowRandom is a writer that appends, rotates and truncates while the
// reader is killed all the time.
func TestFollowRandom(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			follow(t, func(w *logWriter, r *followReader) {
				rng := rand.New(rand.NewPCG(uint64(seed), 3))
				for kills := 0; kills < 50; {
					switch rng.IntN(12) {
					case 0, 1, 2:
						w.append(1 + rng.IntN(20))
					case 3:
						w.appendHalf()
					case 4:
						w.rename()
					case 5: // of a file of which something was read, else nothing tells the copy
						w.append(1)
						r.drain()
						r.checkpoint()
						w.append(rng.IntN(5))
						w.copyTruncate()
					case 6:
						w.finish()
						r.drain()
						r.checkpoint()
						w.truncate()
					case 7, 8:
						r.read(1+rng.IntN(30), time.Duration(rng.IntN(200))*time.Millisecond)
					case 9:
						r.checkpoint()
					case 10:
						r.drain()
					case 11:
						r.kill()
						kills++
					}
				}
			})
		})
	}
}

// TestFollowDirectory: files appear, grow, are renamed within the directory and
// removed.
func TestFollowDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := &followReader{t: t, open: func() Source { return NDJSON(dir, followOptions) }}
		r.start()
		a := &logWriter{t: t, path: filepath.Join(dir, "a")}
		for round := range 6 {
			a.append(3)
			b := &logWriter{t: t, path: filepath.Join(dir, fmt.Sprintf("b%d", round)), lines: a.lines}
			b.append(2)
			a.lines = b.lines
			r.read(2, time.Second)
			r.checkpoint()
			if round%2 == 0 {
				r.kill()
			}
			if round == 3 {
				a.rename()
			}
			if round == 4 {
				r.drain()
				r.checkpoint()
				if err := os.Remove(filepath.Join(dir, "b0")); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.check(a.lines)
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFollowAfterPlain: a file that was read to its end can be followed from
// there, and the other way round.
func TestFollowAfterPlain(t *testing.T) {
	want := lines("a", 6)
	path := write(t, "in", text(want[:4]))
	position := positionAfter(t, NDJSON(path, Options{}), 3)
	s := NDJSON(path, followOptions)
	if err := s.Open(t.Context(), []byte(position)); err != nil {
		t.Fatal(err)
	}
	got, err := nextWithin(t, s, time.Minute)
	if err != nil || !slices.Equal(got, want[3:4]) {
		t.Fatalf("%q, %v", got, err)
	}
	after := s.Position()
	closeSource(t, s)
	writeFile(t, path, text(want))
	if got, err := readAll(t, NDJSON(path, Options{}), after, 10); err != nil || !slices.Equal(got, want[4:]) {
		t.Errorf("%q, %v", got, err)
	}
	dir := filepath.Dir(path)
	writeFile(t, filepath.Join(dir, "in2"), "1\n")
	several := positionAfter(t, NDJSON(dir, Options{}), 7)
	if err := NDJSON(dir, followOptions).Open(t.Context(), []byte(several)); err == nil || !strings.Contains(err.Error(), "one after the other") {
		t.Errorf("error %v", err)
	}
}

func TestFollowCSV(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "in.csv")
		w := &logWriter{t: t, path: path}
		r := &followReader{t: t, open: func() Source { return CSV(path, followOptions) }}
		r.start()
		for _, s := range []string{"a,", "b\n1,", "2\n\"x", "\n\"", ",4\n"} {
			w.write(s)
			r.drain()
			r.checkpoint()
			r.kill()
		}
		if want := []string{`{"a":"1","b":"2"}`, `{"a":"x\n","b":"4"}`}; !slices.Equal(r.committed, want) {
			t.Errorf("%q, want %q", r.committed, want)
		}
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
