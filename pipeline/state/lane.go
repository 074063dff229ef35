package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dgraph-io/badger/v4"
)

// maxState is the longest state with its key.
const maxState = 1<<20 - 64

// A lane is the state of the keys of one lane: what has changed, over what is in
// the store.
type lane struct {
	store   *Store
	changed map[string][]byte // nil for a key that was removed
	size    int
	key     []byte // with prefix, for reading
	value   []byte
}

func (l *lane) Get(key []byte) ([]byte, error) {
	if v, ok := l.changed[string(key)]; ok {
		return v, nil
	}
	l.key = append(append(l.key[:0], keyPrefix), key...)
	txn := l.store.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	item, err := txn.Get(l.key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if l.value, err = item.ValueCopy(l.value); err != nil {
		return nil, err
	}
	return slices.Clip(l.value), nil
}

func (l *lane) Put(key, value []byte) error {
	if n := len(key) + len(value); n > maxState {
		return fmt.Errorf("state of %d bytes, the limit is %d", n, maxState)
	}
	old, ok := l.changed[string(key)]
	if ok && old != nil && value != nil && len(old) == len(value) {
		copy(old, value)
		return nil
	}
	if !ok {
		l.size += len(key) + 64
	}
	l.size += len(value) - len(old)
	if value == nil {
		l.changed[string(key)] = nil
	} else {
		l.changed[string(key)] = append(make([]byte, 0, len(value)), value...)
	}
	if l.size < l.store.dirty {
		return nil
	}
	return l.flush()
}

// flush writes what has changed under a new version.
func (l *lane) flush() error {
	if len(l.changed) == 0 {
		return nil
	}
	err := l.store.write(func(wb *badger.WriteBatch) error {
		for key, value := range l.changed {
			if err := set(wb, append([]byte{keyPrefix}, key...), value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	clear(l.changed)
	l.size = 0
	return nil
}

func set(wb *badger.WriteBatch, key, value []byte) error {
	if value == nil {
		return wb.Delete(key)
	}
	return wb.Set(key, value)
}

// Snapshot writes what has changed. With synchronous writes it is durable then.
func (l *lane) Snapshot(_ context.Context, checkpoint uint64) ([]byte, error) {
	if err := l.flush(); err != nil {
		return nil, fmt.Errorf("state %s: %w", l.store.dir, err)
	}
	version := l.store.written.Load()
	l.store.note(checkpoint, version)
	return l.store.handle(version), nil
}
