package wal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
)

var errInjected = errors.New("injected")

// A memory is a backend of maps that fails on demand and can lose what was not
// synced.
type memory struct {
	mu   sync.Mutex
	gens map[uint64]*memoryStore
	ops  []string
	// failAt is the number of the operation that fails, from 1; 0 for none.
	failAt  int
	failErr error
	sticky  bool // all operations after it fail as well
}

func newMemory() *memory { return &memory{gens: make(map[uint64]*memoryStore)} }

// step counts an operation and says whether it is to fail.
func (m *memory) step(op string) error {
	m.ops = append(m.ops, op)
	n := len(m.ops)
	if m.failAt != 0 && (n == m.failAt || m.sticky && n > m.failAt) {
		return fmt.Errorf("%s: %w", op, m.failErr)
	}
	return nil
}

// kill returns what is left of the backend after the process was killed. What was
// not synced is there, and a power cut can still take it.
func (m *memory) kill() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := newMemory()
	for n, g := range m.gens {
		left.gens[n] = &memoryStore{m: left, appends: slices.Clone(g.appends), synced: g.synced, there: g.there}
	}
	return left
}

// powerCut returns what is left of the backend after a power cut: of each
// generation what was synced and then, of the rest, the first keep appends.
func (m *memory) powerCut(keep int) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := newMemory()
	for n, g := range m.gens {
		appends := slices.Clone(g.appends[:min(len(g.appends), max(g.synced, g.there)+keep)])
		left.gens[n] = &memoryStore{m: left, appends: appends, synced: g.synced, there: len(appends)}
	}
	return left
}

func (m *memory) list() ([]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step("list"); err != nil {
		return nil, err
	}
	var numbers []uint64
	for n := range m.gens {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (m *memory) create(n uint64, _ bool) (store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step("create"); err != nil {
		return nil, err
	}
	if m.gens[n] != nil {
		return nil, fmt.Errorf("generation %d was created twice", n)
	}
	s := &memoryStore{m: m, open: true}
	m.gens[n] = s
	return s, nil
}

func (m *memory) open(n uint64) (store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step("open"); err != nil {
		return nil, err
	}
	s := m.gens[n]
	if s == nil {
		return nil, errors.New("no such generation")
	}
	s.open = true
	return s, nil
}

func (m *memory) drop(n uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step("drop"); err != nil {
		return err
	}
	if m.gens[n] == nil || m.gens[n].open {
		return fmt.Errorf("generation %d is open or gone", n)
	}
	delete(m.gens, n)
	return nil
}

func (m *memory) close() error { return nil }

type memoryStore struct {
	m        *memory
	appends  [][]entry
	synced   int // and noted as such
	there    int // survived a power cut, so it is on the disk
	reserved int64
	open     bool
}

func (s *memoryStore) append(entries ...entry) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	var group []entry
	for _, e := range entries {
		group = append(group, entry{bytes.Clone(e.key), bytes.Clone(e.value)})
	}
	err := s.m.step("append")
	if err == nil || !errors.Is(err, ErrNoSpace) {
		s.appends = append(s.appends, group) // an error does not say that nothing was written
	}
	return err
}

func (s *memoryStore) reserve(n int64) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if n <= s.reserved {
		return nil
	}
	if err := s.m.step("reserve"); err != nil {
		return err
	}
	s.reserved = n
	return nil
}

func (s *memoryStore) sync() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.synced == len(s.appends) {
		return nil
	}
	if err := s.m.step("sync"); err != nil {
		return err
	}
	s.synced = len(s.appends)
	return nil
}

// syncValues has nothing to do: values are in the entries.
func (s *memoryStore) syncValues() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.step("sync values")
}

func (s *memoryStore) get(key, dst []byte) ([]byte, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if err := s.m.step("get"); err != nil {
		return dst, err
	}
	for _, group := range slices.Backward(s.appends) {
		for _, e := range slices.Backward(group) {
			if bytes.Equal(e.key, key) {
				return append(dst, e.value...), nil
			}
		}
	}
	return dst, errAbsent
}

func (s *memoryStore) scan(kind byte, fn func(key, value []byte, version uint64) error) error {
	s.m.mu.Lock()
	err := s.m.step("scan")
	type found struct {
		entry
		version uint64
	}
	last := make(map[string]found)
	for i, group := range s.appends {
		for _, e := range group {
			if e.key[0] == kind {
				last[string(e.key)] = found{e, uint64(i + 1)}
			}
		}
	}
	s.m.mu.Unlock()
	if err != nil {
		return err
	}
	var keys []string
	for k := range last {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := fn([]byte(k), last[k].value, last[k].version); err != nil {
			return err
		}
	}
	return nil
}

func (s *memoryStore) versions() (last, synced uint64) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return uint64(len(s.appends)), uint64(s.synced)
}

func (s *memoryStore) size() int64 {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	var sum int64
	for _, group := range s.appends {
		for _, e := range group {
			sum += int64(len(e.key) + len(e.value))
		}
	}
	return sum
}

func (s *memoryStore) close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.open = false
	return s.m.step("close")
}
