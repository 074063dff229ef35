package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/record"
)

// put appends, seals, completes: one whole checkpoint of a lane.
func put(t testing.TB, l *Log, lane string, checkpoint uint64, recs ...[]byte) record.Batch {
	t.Helper()
	ln := mustLane(t, l, lane)
	for _, r := range recs {
		if err := ln.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	b, _, err := ln.Seal(checkpoint, []byte("p"), "f", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Complete(checkpoint, []byte("p")); err != nil {
		t.Fatal(err)
	}
	return b
}

func commit(t testing.TB, l *Log, lane string, seq uint64) {
	t.Helper()
	if err := l.Commit(lane, seq); err != nil {
		t.Fatal(err)
	}
}

func diskUse(t testing.TB, dir string) (sum int64) {
	t.Helper()
	for _, rel := range filesOf(t, dir) {
		if info, err := os.Stat(filepath.Join(dir, rel)); err == nil {
			sum += used(info)
		}
	}
	return sum
}

// TestB01SpaceIsBounded: what was committed goes, whatever else is held, and one
// state key rewritten again and again takes no space (B02). No generation is ever
// collected, so that no collection can need memory (B04) or bring back what was
// deleted (B29).
func TestB01SpaceIsBounded(t *testing.T) {
	dir := t.TempDir()
	opts := Options{GenerationBytes: 4 << 20, Retain: -1, Logger: quiet}
	l := mustOpen(t, dir, opts)
	rec := bytes.Repeat([]byte("x"), 64<<10)
	var peak int64
	for c := uint64(1); c <= 60; c++ {
		b := put(t, l, testLane, c, slices.Repeat([][]byte{rec}, 16)...)
		commit(t, l, testLane, b.Seq)
		peak = max(peak, l.Stat().Bytes)
	}
	if peak > 8*opts.GenerationBytes {
		t.Errorf("the log held %d MiB at 60 MiB through it and none pending", peak>>20)
	}
	waitFor(t, l, func(s Stat) bool { return s.Generations <= 2 })
	t.Run("B05", func(t *testing.T) {
		waitFor(t, l, func(s Stat) bool { return s.Generations == 1 })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if n := diskUse(t, dir); n > 2*opts.GenerationBytes+(4<<20) {
			t.Errorf("%d bytes on disk with nothing held", n)
		}
	})
	t.Run("B31", func(t *testing.T) { // nothing expires, nothing deleted comes back
		l := mustOpen(t, dir, opts)
		if held := l.Batches(testLane); len(held) > 4 {
			t.Errorf("%d batches are back", len(held))
		}
		if head, committed, _ := l.Head(testLane); head.Seq != 60 || committed != 60 {
			t.Errorf("head %d committed %d, want 60", head.Seq, committed)
		}
	})
}

// TestB07Sizes: a checkpoint of many small records, and one of few large ones.
func TestB07Sizes(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{Logger: quiet})
	small := make([]byte, 20)
	ln := mustLane(t, l, testLane)
	for range 1_000_000 {
		if err := ln.Append(t.Context(), small); err != nil {
			t.Fatal(err)
		}
	}
	b := put(t, l, testLane, 1)
	count := func(seq uint64) (n, size int) {
		for block, err := range l.Blocks(testLane, seq) {
			if err != nil {
				t.Fatal(err)
			}
			n += block.Len()
			size += len(block.Payload())
		}
		return n, size
	}
	if n, size := count(b.Seq); n != 1_000_000 || size != 20_000_000 || b.Records != 1_000_000 {
		t.Errorf("%d records, %d bytes", n, size)
	}
	if testing.Short() {
		return
	}
	large := make([]byte, 60<<20)
	b = put(t, l, testLane, 2, large, large, large)
	if n, size := count(b.Seq); n != 3 || size != 3*len(large) {
		t.Errorf("%d records, %d bytes", n, size)
	}
	if err := ln.Append(t.Context(), make([]byte, record.MaxRecord+1)); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("a record over the limit: %v", err)
	}
	if records, _ := ln.Pending(); records != 0 {
		t.Errorf("a refused record counts")
	}
}

// TestB20LargeRecords: memory stays bounded however many large records come.
func TestB20LargeRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 640 MiB")
	}
	l := mustOpen(t, t.TempDir(), Options{Retain: -1, MaxBytes: 512 << 20, Logger: quiet})
	rec := make([]byte, 16<<20)
	var peak uint64
	for c := range uint64(10) {
		b := put(t, l, testLane, c+1, rec, rec, rec, rec)
		commit(t, l, testLane, b.Seq)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
	}
	if peak > 400<<20 {
		t.Errorf("heap of %d MiB", peak>>20)
	}
	t.Logf("heap peak %d MiB", peak>>20)
}

// TestB11TornValues: the newest file of blocks loses its end, its index does not, and
// nothing was acknowledged. The batch goes as a unit; no empty value is delivered.
func TestB11TornValues(t *testing.T) {
	master := t.TempDir()
	k := newTold()
	k.runChild(t, master, time.Minute, "WALSINK_WAL_STOP=2")
	newest, _, _ := newestWith(t, master, valueFile)
	newest, err := filepath.Rel(master, newest)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut <= 4096; cut += 585 {
		dir := copyDir(t, master)
		path := filepath.Join(dir, newest)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()-int64(cut)); err != nil {
			t.Fatal(err)
		}
		// As after a power cut: the note of the sync did not make it either.
		gen := filepath.Dir(path)
		if err := os.WriteFile(filepath.Join(gen, syncedFile), encodeSynced(0), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if d := l.Stat().Damage; len(d) > 0 {
			t.Errorf("cut by %d: damage %v", cut, d)
		}
		for _, lane := range killLanes {
			for _, b := range l.Batches(lane) {
				if got := readBatch(t, l, lane, b.Seq); len(got) != len(killRecords(lane, b.Seq)) {
					t.Errorf("cut by %d: %s batch %d has %d records", cut, lane, b.Seq, len(got))
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestB16FirstAcknowledgement: a new log, the first seal, a kill.
func TestB16FirstAcknowledgement(t *testing.T) {
	for range 3 {
		dir, k := t.TempDir(), newTold()
		k.runChild(t, dir, time.Minute, "WALSINK_WAL_STOP=1")
		if k.completed != 1 {
			t.Fatalf("completed %d", k.completed)
		}
		k.check(t, dir)
	}
}

// newestWith returns the newest file of that name that holds entries, and where
// they end. The process may have been killed while it made the next generation.
func newestWith(t *testing.T, dir, name string) (path string, b []byte, end int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "gen-*", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Backward(files) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		end := len(b)
		if name == indexFile {
			end = indexEnd(b)
		}
		if logHeader < end && end <= len(b) {
			return path, b, end
		}
	}
	t.Fatalf("no %s of %d holds entries", name, len(files))
	return "", nil, 0
}

// TestB19Middle: one byte in the middle of acknowledged entries. What is lost is
// named; what comes after is not dropped quietly.
func TestB19Middle(t *testing.T) {
	master := t.TempDir()
	batches := buildLog(t, master, false)
	for _, name := range []string{valueFile, indexFile} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, master)
			path, b, end := newestWith(t, dir, name)
			b[end/2] ^= 4
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			complaints := survey(t, dir, batches)
			if len(complaints) == 0 {
				t.Fatal("nobody complains")
			}
			for _, err := range complaints {
				d, ok := errors.AsType[*Damage](err)
				if !ok || d.Generation == 0 && d.Seq == 0 {
					t.Errorf("%v does not say where", err)
				}
			}
		})
	}
}

// TestB23Locked: a second owner is told who the first one is.
func TestB23Locked(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Options{Logger: quiet})
	_, err := Open(dir, Options{Logger: quiet})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("error %v, want ErrLocked and the pid", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Options{Logger: quiet})
	t.Run("other process", func(t *testing.T) {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// TestB25Close: closing is quick, of an empty log and of one with much in it.
func TestB25Close(t *testing.T) {
	for _, mib := range []int{0, 96} {
		l := mustOpen(t, t.TempDir(), Options{Logger: quiet})
		rec := make([]byte, 64<<10)
		ln := mustLane(t, l, testLane)
		for range mib * 16 {
			if err := ln.Append(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if err := l.Close(); err != nil { // B26: nothing is compacted, so nothing can fail
			t.Fatal(err)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("close of %d MiB took %v", mib, d)
		}
		if err := l.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	}
}

// TestB28NoStall: many tiny batches over many generations; no call waits long,
// and no generation's index ever fills, which is what keeps Badger from flushing.
func TestB28NoStall(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Retain: -1, Logger: quiet})
	ln := mustLane(t, l, testLane)
	n := uint64(3000)
	if testing.Short() {
		n = 2000
	}
	var longest time.Duration
	for c := uint64(1); c <= n; c++ {
		start := time.Now()
		if err := ln.Append(t.Context(), []byte("tiny")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ln.Seal(c, []byte("position"), "f", false); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(start))
	}
	if longest > 5*time.Second {
		t.Errorf("a call took %v", longest)
	}
	if err := l.Complete(n, nil); err != nil {
		t.Fatal(err)
	}
	if got := len(l.Batches(testLane)); got != int(n) {
		t.Errorf("%d batches, want %d", got, n)
	}
	for _, pattern := range []string{"00002.mem", "000002.vlog", "000002.sst"} {
		if files, _ := filepath.Glob(filepath.Join(dir, "gen-*", pattern)); len(files) > 0 {
			t.Errorf("Badger went to a second file: %v", files)
		}
	}
	if l.Stat().Generations < 3 {
		t.Error("the index never made the log go to a new generation; the test shows nothing")
	}
}

// TestB32ManifestSync and the like cannot be met half way: what Badger only logs
// about a generation that is written latches the log.
func TestB32BadgerLogLatches(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	put(t, l, testLane, 1, []byte("a"))
	l.mu.Lock()
	st := l.active.st.(*badgerStore)
	l.mu.Unlock()
	badgerLogger{st}.Warningf("while syncing manifest: %v", syscall.EIO)
	ln := mustLane(t, l, testLane)
	if err := ln.Append(t.Context(), []byte("b")); err != nil {
		t.Fatal(err) // memory only; nothing acknowledged
	}
	_, _, serr := ln.Seal(2, nil, "", false)
	if err := firstErr(serr, l.Sync()); !errors.Is(err, ErrFailed) {
		t.Fatalf("error %v, want ErrFailed", err)
	}
	if err := ln.Append(t.Context(), []byte("c")); !errors.Is(err, ErrFailed) {
		t.Errorf("append after a failure: %v", err)
	}
	if err := l.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("close after a failure: %v", err)
	}
	l = mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	if got := readBatch(t, l, testLane, 1); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after open: %q", got)
	}
}

// TestB38Probe: an unsupported file system is refused in clear words.
func TestB38Probe(t *testing.T) {
	if _, err := Open("/proc/self/walsink", Options{Logger: quiet}); err == nil {
		t.Error("a log in /proc")
	}
	if err := probe(t.TempDir()); err != nil {
		t.Errorf("probe of a fit file system: %v", err)
	}
	if _, err := os.Stat("/dev/shm"); err == nil {
		if err := probe("/dev/shm"); err != nil {
			t.Errorf("probe of tmpfs: %v", err)
		}
	}
}

// TestB40CancelledReads: readers that stop half way hold nothing.
func TestB40CancelledReads(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{GenerationBytes: 1 << 20, Retain: -1, Logger: quiet})
	rec := make([]byte, 100<<10)
	put(t, l, testLane, 1, slices.Repeat([][]byte{rec}, 40)...)
	n := 1000
	if testing.Short() {
		n = 100
	}
	for i := range n {
		for range l.Blocks(testLane, 1) {
			break
		}
		if i%100 == 0 {
			put(t, l, "sink/other", uint64(2+i), rec)
		}
	}
	l.mu.Lock()
	pins := mustBatch(t, l, testLane, 1).pins
	l.mu.Unlock()
	if pins != 0 {
		t.Errorf("%d pins are left", pins)
	}
	commit(t, l, testLane, 1)
	waitFor(t, l, func(Stat) bool { return len(l.Batches(testLane)) == 0 })
}

func mustBatch(t testing.TB, l *Log, lane string, seq uint64) *batch {
	t.Helper()
	for _, b := range l.lanes[lane].batches {
		if b.Seq == seq {
			return b
		}
	}
	t.Fatalf("no batch %d in %s", seq, lane)
	return nil
}
