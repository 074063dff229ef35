package committer_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

func TestChunks(t *testing.T) {
	for _, step := range []int64{1, 4, 7, 16, 40, 399, 400} {
		for _, perBlock := range []int{1, 3, 7, 200} {
			t.Run(fmt.Sprintf("step=%d/block=%d", step, perBlock), func(t *testing.T) {
				w := newWorld(t)
				w.mopts.StepBytes, w.mopts.Chunked = step, true
				w.log.blockRecords = perBlock
				w.open()
				w.add(1, recs(0, 99)...)
				w.add(2, "", strings.Repeat("x", 500), "", "y", "")
				w.drain()
				w.want(append(recs(0, 99), "", strings.Repeat("x", 500), "", "y", "")...)
				for _, s := range w.sink.steps {
					if s.Bytes > max(step, 500) || s.Bytes > step && s.Records > 1 {
						t.Fatalf("a step of %d records, %d bytes", s.Records, s.Bytes)
					}
				}
				if n, _ := w.sink.calls(); step == 4 && n < 100 {
					t.Fatalf("%d steps", n)
				}
			})
		}
	}
}

// A batch is read twice however many chunks it has, and again for a retry.
func TestChunksDoNotReadAgain(t *testing.T) {
	w := newWorld(t)
	w.mopts.StepBytes, w.mopts.Chunked = 4, true
	w.open()
	w.add(1, recs(0, 99)...)
	w.drain()
	w.close()
	if w.log.blocks != 2 {
		t.Fatalf("the batch was read %d times", w.log.blocks)
	}
}

// A step can be ranged over again, also after it was broken off.
func TestRunsAreRestartable(t *testing.T) {
	for _, chunk := range []int64{0, 40} {
		w := newWorld(t)
		w.mopts.StepBytes, w.mopts.Chunked = chunk, chunk > 0
		w.open()
		w.sink.flush = func(_ int, s *sinks.Step) fault {
			want := runs(s, -1)
			for n := range 5 {
				if got := runs(s, n); !bytes.HasPrefix(want, got) {
					t.Errorf("%q is no beginning of %q", got, want)
				}
			}
			if again := runs(s, -1); !bytes.Equal(again, want) {
				t.Errorf("then %q, before %q", again, want)
			}
			return fault{}
		}
		w.add(1, recs(0, 99)...)
		w.drain()
		w.want(recs(0, 99)...)
	}
}

// runs returns the payload of the first n runs, or of all.
func runs(s *sinks.Step, n int) (out []byte) {
	for run, err := range s.Runs {
		if n == 0 || err != nil {
			break
		}
		out = append(out, run.Block.Payload()...)
		n--
	}
	return out
}

// A batch that was begun in chunks ends also if the sink no longer cuts.
func TestChunkingSwitchedOff(t *testing.T) {
	w := partial(t)
	w.mopts.StepBytes, w.mopts.Chunked = 0, false
	w.open()
	w.drain()
	w.want(recs(1, 10)...)
	if n, _ := w.sink.calls(); n != 1 {
		t.Fatalf("%d steps", n)
	}
}

func TestChunkSizeChanged(t *testing.T) {
	w := partial(t)
	w.mopts.StepBytes = 12
	w.open()
	w.drain()
	w.want(recs(1, 10)...)
}

// C108, C044: whatever happens to the bytes of a batch, nothing of it is published.
func TestC108C044Damage(t *testing.T) {
	damages := map[string]func(b *fakeBatch){
		"flip in a block":  func(b *fakeBatch) { b.blocks[1][2] ^= 1 },
		"block lost":       func(b *fakeBatch) { b.blocks = b.blocks[:3] },
		"block twice":      func(b *fakeBatch) { b.blocks = append(b.blocks, b.blocks[0]) },
		"blocks swapped":   func(b *fakeBatch) { b.blocks[0], b.blocks[1] = b.blocks[1], b.blocks[0] },
		"tail cut":         func(b *fakeBatch) { b.blocks[3] = b.blocks[3][:5] },
		"all blocks lost":  func(b *fakeBatch) { b.blocks = nil },
		"another record":   func(b *fakeBatch) { b.blocks[0] = block("r000", "r001", "r00x") },
		"another boundary": func(b *fakeBatch) { b.blocks[0] = block("r00", "0r001", "r002") },
	}
	for name, damage := range damages {
		for _, chunk := range []int64{0, 8} {
			t.Run(fmt.Sprintf("%s/chunk=%d", name, chunk), func(t *testing.T) {
				w := newWorld(t)
				w.mopts.StepBytes, w.mopts.Chunked = chunk, chunk > 0
				w.open()
				w.close()
				w.log.add(key, 5, recs(0, 9)...)
				damage(w.log.find(key, 1))
				w.open()
				w.wantStop(nil, "lane orders/a", "checkpoint 5")
				if err := w.c.Err(); !errors.Is(err, committer.ErrDamaged) && !errors.Is(err, record.ErrCorrupt) {
					t.Fatalf("error %v", err)
				}
				w.want()
			})
		}
	}
}

func block(recs ...string) []byte {
	var b record.Builder
	for _, r := range recs {
		if err := b.Append([]byte(r)); err != nil {
			panic(err)
		}
	}
	return bytes.Clone(b.Finish(record.NewHasher()))
}

// Every read of the log fails once. The lane stops; a new start finishes.
func TestEveryLogOperationFailsOnce(t *testing.T) {
	for n := 1; ; n++ {
		w := newWorld(t)
		w.mopts.StepBytes, w.mopts.Chunked, w.mopts.Reject = 16, true, badRecord
		w.opts.DeadLetters = true
		list := spoil(recs(0, 19), 3, 11)
		left := n
		w.open()
		w.log.mu.Lock()
		w.log.fail = func(string) error {
			if left--; left == 0 {
				return errors.New("disk")
			}
			return nil
		}
		w.log.mu.Unlock()
		w.add(1, list...)
		w.add(2, "last")
		err := w.c.Drain(t.Context())
		if err == nil && left > 0 {
			break
		}
		if err != nil {
			wantErr(t, err, nil, "disk")
			w.restart()
			w.drain()
		}
		w.want(append(goodOnes(list), "last")...)
		w.wantDead(3, 11)
	}
}

// A batch that was cut is let go when it is in: the log drops the batches of a lane
// in order, so that one which is held for ever fills it up.
func TestChunksLetGoOfTheBatch(t *testing.T) {
	w := newWorld(t)
	w.mopts.StepBytes, w.mopts.Chunked = 40, true
	w.open()
	w.add(1, recs(0, 99)...)
	w.add(2, "small")
	w.drain()
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if w.log.open != 0 {
		t.Fatalf("%d batches are still held by the reader", w.log.open)
	}
}
