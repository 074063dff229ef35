package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/walsink/walsink/sinks"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, bad := range []Options{
		{Format: "xml"}, {Compress: "lzma"}, {Format: "csv", BucketField: "x"}, {Header: []string{"x"}},
		{MaxPartBytes: -1}, {StepBytes: -1}, {KeepAudit: -1}, {MaxBuckets: -1}, {Mode: 0o400}, {Mode: fs.ModeSetuid | 0o600},
	} {
		if s, err := Open(t.TempDir(), bad); err == nil {
			s.Close()
			t.Errorf("%+v was taken", bad)
		}
	}
	for _, bad := range []Options{{Format: "raw"}, {Buckets: true}, {Format: "xml"}} {
		if _, err := NewEncoder(bad); err == nil {
			t.Errorf("an encoder for %+v", bad)
		}
	}
}

func TestInfo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	info := open(t, dir, Options{}).Info()
	if info != (sinks.Info{Name: "file", Target: dir, Guarantee: sinks.ExactlyOnce, Format: "file 1 ndjson", StepBytes: 64 << 20}) {
		t.Errorf("%+v", info)
	}
	formats := map[string]bool{}
	for _, opts := range []Options{{}, {Buckets: true}, {Format: "csv"}, {Format: "csv", Header: []string{"a"}}, {Format: "csv", Header: []string{"b"}}, {Format: "raw"}} {
		plain := open(t, dir, opts).Info().Format
		opts.Compress = "zstd"
		if got := open(t, dir, opts).Info().Format; got != plain || formats[plain] || len(plain) > 255 {
			t.Errorf("%+v: format %q, compressed %q", opts, plain, got)
		}
		formats[plain] = true
	}
}

func TestOpenAndCloseAreClean(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{name, filepath.Join(name, "below")} {
		if _, err := Open(dir, Options{}); err == nil {
			t.Errorf("%s was opened", dir)
		}
	}
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Acquire(t.Context(), orders); err == nil {
		t.Error("a closed sink gave a lane")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestAcquireRefusesNames(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for _, id := range []sinks.LaneID{{}, {Sink: "a", Lane: ".."}, {Sink: "a/b", Lane: "x"}, {Sink: "a+b", Lane: "x"}} {
		_, _, err := s.Acquire(t.Context(), id)
		wantKind(t, err, sinks.Permanent)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := s.Acquire(ctx, orders)
	wantKind(t, err, sinks.Cancelled)
}

// The longest names there may be still make a file name.
func TestLongestNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Compress: "zstd", Buckets: true})
	id := sinks.LaneID{Sink: strings.Repeat("s", sinks.MaxName), Lane: strings.Repeat("l", sinks.MaxName)}
	l, m, err := s.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	const millis = 1_700_000_000_000
	step := stepAfter(id, m, batch{millis, []string{inBucket(strings.Repeat("b", maxBucket), "x")}}, batch{millis + 1, nil})
	if _, err := l.Flush(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	step = stepAfter(id, step.Next, batch{millis + 2, []string{inBucket("b", "x")}}, batch{1 << 63, nil})
	_, err = l.Flush(t.Context(), step)
	wantKind(t, err, sinks.Permanent)
	if len(visible(t, dir)) != 1 {
		t.Errorf("parts %v", visible(t, dir))
	}
}

// Every combination gives the same records in the same order.
func TestAllOptionsGiveTheSameRecords(t *testing.T) {
	src := bigSource(4, 100)
	for _, compress := range []string{"", "gzip", "zstd"} {
		for _, maxPart := range []int64{0, 1, 100, 3000, 1 << 40} {
			for _, together := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s %d %d", compress, maxPart, together), func(t *testing.T) {
					dir := scratch(t)
					o := acquire(t, dir, Options{Compress: compress, MaxPartBytes: maxPart})
					o.flush(src[:together]...)
					for _, b := range src[together:] {
						o.flush(b)
					}
					wantConcat(t, dir, src.upTo(4))
					for name, text := range visible(t, dir) {
						if maxPart > 0 && int64(len(text)) > maxPart && strings.Count(text, "\n") > 1 {
							t.Fatalf("%s has %d bytes, the limit is %d", name, len(text), maxPart)
						}
					}
				})
			}
		}
	}
}

// More than the memory for buckets: records go through spill files, and their order
// stays.
func TestBucketsLargerThanMemory(t *testing.T) {
	dir := scratch(t)
	o := acquire(t, dir, Options{Buckets: true, MaxPartBytes: 4 << 20, Compress: "zstd"})
	b := batch{checkpoint: 1}
	pad := strings.Repeat("x", 300)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 3 * spoolBytes / 330 {
		b.recs = append(b.recs, inBucket(fmt.Sprintf("b%d", rnd.IntN(7)), fmt.Sprintf("%d %s", i, pad[:250+rnd.IntN(50)])))
	}
	spills := 0
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "create" && strings.HasSuffix(name, ".spill") {
			spills++
		}
		return do()
	}
	o.flush(b)
	if spills != 7 {
		t.Errorf("%d spill files, want 7", spills)
	}
	wantBuckets(t, dir, source{b})
	wantNoStaging(t, dir)
}

func TestTooManyBucketsIsRefused(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{Buckets: true, MaxBuckets: 2})
	wantKind(t, o.try(bucketSource(1, 3, 3)...), sinks.Permanent)
	o.flush(bucketSource(1, 3, 2)...)
}

func TestModesWhateverTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	acquire(t, dir, Options{Buckets: true, Mode: 0o664}).flush(batch{1, []string{inBucket("b", "x")}})
	syscall.Umask(0)
	acquire(t, dir, Options{Buckets: true}).flush(batch{2, []string{inBucket("c", "x")}})
	want := map[string]fs.FileMode{
		"b": 0o775, "b/orders+main+00000000000000000001+00000.ndjson": 0o664,
		"c": 0o755, "c/orders+main+00000000000000000002+00000.ndjson": 0o644,
	}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		info, serr := d.Info()
		rel, _ := filepath.Rel(dir, name)
		mode, ok := want[rel]
		switch {
		case ok:
		case d.IsDir():
			mode = 0o700
		default:
			mode = 0o600
		}
		if rel != "." && serr == nil && info.Mode().Perm() != mode {
			t.Errorf("%s has mode %#o, want %#o", rel, info.Mode().Perm(), mode)
		}
		return errors.Join(err, serr)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestClassify(t *testing.T) {
	path := func(errno syscall.Errno) error { return &fs.PathError{Op: "open", Path: "x", Err: errno} }
	for _, c := range []struct {
		err  error
		kind sinks.Kind
	}{
		{path(syscall.ENOSPC), sinks.Transient}, {path(syscall.EDQUOT), sinks.Transient},
		{path(syscall.EMFILE), sinks.Transient}, {path(syscall.ENFILE), sinks.Transient},
		{path(syscall.EINTR), sinks.Transient}, {path(syscall.EIO), sinks.Transient},
		{path(syscall.ENOMEM), sinks.Transient}, {path(syscall.ESTALE), sinks.Transient},
		{path(syscall.EROFS), sinks.Permanent}, {path(syscall.EACCES), sinks.Permanent},
		{path(syscall.EPERM), sinks.Permanent}, {path(syscall.ENOTDIR), sinks.Permanent},
		{path(syscall.ELOOP), sinks.Permanent}, {path(syscall.ENOENT), sinks.Permanent},
		{path(syscall.EEXIST), sinks.Permanent}, {path(syscall.EINVAL), sinks.Permanent},
		{path(syscall.EFBIG), sinks.Permanent}, {path(syscall.ENAMETOOLONG), sinks.Permanent},
		{errors.New("?"), sinks.Transient},
		{unsure{path(syscall.EROFS)}, sinks.Ambiguous},
		{fmt.Errorf("x: %w: %w", errSync, path(syscall.EIO)), sinks.Permanent},
		{unsure{fmt.Errorf("x: %w", errSync)}, sinks.Ambiguous},
		{context.Canceled, sinks.Cancelled}, {context.DeadlineExceeded, sinks.Cancelled},
		{errDamaged, sinks.Permanent}, {errRefused, sinks.Permanent}, {errTaken, sinks.Transient},
	} {
		err := fail("flush", orders, 7, c.err)
		if wantKind(t, err, c.kind); !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), "flush lane orders/main checkpoint 7: "+c.kind.String()) {
			t.Errorf("%v", err)
		}
	}
	if err := fail("flush", orders, 1, nil); err != nil {
		t.Error(err)
	}
}
