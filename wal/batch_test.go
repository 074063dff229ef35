package wal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// transactionsEnv has the child of TestB08 kill itself before the transaction
// after so many.
const transactionsEnv = "WALSINK_WAL_TRANSACTIONS"

// A mortal is Badger whose process is killed before one of its transactions.
type mortal struct {
	backend
	left int
}

type mortalStore struct {
	store
	of *mortal
}

func (m *mortal) create(n uint64, small bool) (store, error) {
	s, err := m.backend.create(n, small)
	return mortalStore{s, m}, err
}

func (s mortalStore) append(entries ...entry) error {
	if s.of.left == 0 {
		return errors.Join(die(), errors.New("the process is alive"))
	}
	s.of.left--
	return s.store.append(entries...)
}

// wideRecords are a batch of 3 MiB: twelve blocks, each a transaction, in more
// than three generations.
func wideRecords() (recs []string) {
	for i := range 300 {
		recs = append(recs, fmt.Sprintf("%d/%0*d", i, 10_000, i))
	}
	return recs
}

// wideOptions are those of the child and of whoever looks after it.
var wideOptions = Options{GenerationBytes: 1 << 20, Retain: time.Hour, Logger: quiet}

// childWide writes one wide batch and completes it.
func childWide(dir string, transactions string, say func(string, ...any)) error {
	left, err := strconv.Atoi(transactions)
	if err != nil {
		return err
	}
	opts := wideOptions
	opts.backend = &mortal{&badgerDirs{dir: dir, generation: opts.GenerationBytes, log: quiet}, left}
	l, err := Open(dir, opts)
	if err != nil {
		return err
	}
	ln, err := l.Lane(testLane)
	if err != nil {
		return err
	}
	for _, r := range wideRecords() {
		if err := ln.Append(context.Background(), []byte(r)); err != nil {
			return err
		}
	}
	if _, _, err := ln.Seal(1, []byte("p"), "f", false); err != nil {
		return err
	}
	if err := l.Sync(); err != nil {
		return err
	}
	say("sealed %s 1", testLane)
	if err := l.Complete(1, []byte("p")); err != nil {
		return err
	}
	say("completed 1")
	return l.Close()
}

// TestB08BatchOverTransactions kills the writer of one batch between every two of
// its transactions: the batch is wholly there or wholly absent, and there if the
// writer was told so. The log goes on after it.
func TestB08BatchOverTransactions(t *testing.T) {
	outcomes := make(map[string]int)
	for n := 0; ; n++ {
		dir, k := t.TempDir(), newTold()
		state := k.runChild(t, dir, time.Minute, transactionsEnv+"="+strconv.Itoa(n))
		outcomes[wideOutcome(t, dir, k)]++
		if t.Failed() {
			t.Fatalf("killed after transaction %d", n)
		}
		if !killed(state) {
			t.Logf("%d transactions: %v", n, outcomes)
			break
		}
	}
	if outcomes["absent"] < 12 || outcomes["there"] < 2 {
		t.Errorf("outcomes %v: the kills did not hit the batch", outcomes)
	}
}

// wideOutcome is what became of the batch.
func wideOutcome(t *testing.T, dir string, k *told) string {
	t.Helper()
	l := mustOpen(t, dir, wideOptions)
	defer l.Close()
	if d := l.Stat().Damage; len(d) > 0 {
		t.Errorf("damage: %v", d)
	}
	if done, _ := l.Completed(); done < k.completed {
		t.Errorf("completed %d, was told %d", done, k.completed)
	}
	if err := l.Complete(1, []byte("p")); err != nil {
		t.Fatal(err)
	}
	held := l.Batches(testLane)
	outcome := "absent"
	switch {
	case len(held) == 1 && slices.Equal(readBatch(t, l, testLane, 1), wideRecords()):
		outcome = "there"
		if n := len(mustBatch(t, l, testLane, 1).segments); n < 3 {
			t.Errorf("the batch is in %d generations only", n)
		}
	case len(held) > 0:
		t.Errorf("holds %+v, with other records", held)
	case k.sealed[testLane] > 0:
		t.Error("it is gone, and was told to be durable")
	}
	next := put(t, l, testLane, 2, []byte("next"))
	if got := readBatch(t, l, testLane, next.Seq); next.Seq != uint64(len(held))+1 || !slices.Equal(got, []string{"next"}) {
		t.Errorf("batch %d after it has %q", next.Seq, got)
	}
	return outcome
}
