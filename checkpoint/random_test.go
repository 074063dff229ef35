package checkpoint

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestCoordinatorRandom drives a Coordinator with random events and checks what
// must hold whatever happens.
func TestCoordinatorRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opts := Options{
			Tasks:         rapid.IntRange(1, 3).Draw(rt, "tasks"),
			Interval:      time.Duration(rapid.IntRange(0, 20).Draw(rt, "interval")) * time.Second,
			Records:       rapid.Uint64Range(0, 50).Draw(rt, "records"),
			Timeout:       time.Duration(rapid.IntRange(0, 15).Draw(rt, "timeout")) * time.Second,
			MinPause:      time.Duration(rapid.IntRange(0, 5).Draw(rt, "pause")) * time.Second,
			MaxConcurrent: rapid.IntRange(0, 3).Draw(rt, "concurrent"),
		}
		m := &coordModel{rt: rt, opts: opts, state: map[uint64]string{}, acked: map[uint64]int{}, at: map[uint64]time.Time{}}
		m.now = time.Unix(1000, 0)
		m.c = NewCoordinator(opts, 7, m.now)
		m.last, m.complete = 7, 7
		rt.Repeat(map[string]func(*rapid.T){
			"time": func(rt *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "ms")) * time.Millisecond)
				m.apply(m.c.Tick(m.now))
			},
			"deadline": func(*rapid.T) {
				if at, ok := m.c.Deadline(); ok {
					if at.After(m.now) {
						m.now = at
					}
					if actions := m.c.Tick(m.now); len(actions) == 0 {
						m.rt.Fatal("nothing to do at the deadline")
					} else {
						m.apply(actions)
					}
				}
			},
			"request": func(*rapid.T) { m.apply(m.c.Request(m.now)) },
			"count":   func(rt *rapid.T) { m.apply(m.c.Count(m.now, rapid.Uint64Range(0, 30).Draw(rt, "n"))) },
			"ack":     m.ack,
			"stored":  m.stored,
			"decline": m.decline,
			"end":     func(*rapid.T) { m.ending = true; m.apply(m.c.End(m.now)) },
			"":        m.check,
		})
	})
}

type coordModel struct {
	rt       *rapid.T
	opts     Options
	c        *Coordinator
	now      time.Time
	state    map[uint64]string
	acked    map[uint64]int
	at       map[uint64]time.Time
	last     uint64
	complete uint64
	ending   bool
	final    uint64
	finished bool
}

func (m *coordModel) open() []uint64 {
	var ids []uint64
	for id, s := range m.state {
		if s == "pending" || s == "storing" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (m *coordModel) apply(actions []Action) {
	for _, a := range actions {
		switch a.Verb {
		case Trigger:
			if a.ID != m.last+1 {
				m.rt.Fatalf("trigger %d after %d", a.ID, m.last)
			}
			if len(m.open()) >= max(m.opts.MaxConcurrent, 1) {
				m.rt.Fatalf("trigger %d with %v in flight", a.ID, m.open())
			}
			if a.Final != m.ending || m.finished || (a.Final && len(m.open()) > 0) {
				m.rt.Fatalf("trigger %+v", a)
			}
			m.last, m.state[a.ID], m.at[a.ID] = a.ID, "pending", m.now
			if a.Final {
				m.final = a.ID
			}
		case Store:
			if m.state[a.ID] != "pending" || m.acked[a.ID] != m.opts.Tasks {
				m.rt.Fatalf("store %d, which is %s with %d acks", a.ID, m.state[a.ID], m.acked[a.ID])
			}
			m.state[a.ID] = "storing"
		case Complete:
			if m.state[a.ID] != "storing" || a.ID <= m.complete {
				m.rt.Fatalf("complete %d, which is %s, after %d", a.ID, m.state[a.ID], m.complete)
			}
			m.state[a.ID], m.complete = "complete", a.ID
		case Abort:
			if s := m.state[a.ID]; s != "pending" && s != "storing" {
				m.rt.Fatalf("abort %d, which is %q", a.ID, s)
			}
			if errors.Is(a.Err, ErrTimeout) && m.now.Sub(m.at[a.ID]) < m.opts.Timeout {
				m.rt.Fatalf("timeout of %d after %v", a.ID, m.now.Sub(m.at[a.ID]))
			}
			m.state[a.ID] = "aborted"
		case Finish:
			if m.complete != m.final || m.final == 0 {
				m.rt.Fatal("finish without a final checkpoint")
			}
			m.finished = true
		default:
			m.rt.Fatalf("%v", a)
		}
	}
}

func (m *coordModel) ack(rt *rapid.T) {
	ids := m.open()
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(rt, "id")
	if m.state[id] != "pending" {
		return
	}
	task := m.acked[id]
	m.acked[id]++
	actions, err := m.c.Ack(id, task)
	if err != nil {
		rt.Fatal(err)
	}
	m.apply(actions)
}

func (m *coordModel) stored(*rapid.T) {
	for _, id := range m.open() {
		if m.state[id] == "storing" {
			actions, err := m.c.Stored(m.now, id)
			if err != nil {
				m.rt.Fatal(err)
			}
			m.apply(actions)
			return
		}
	}
}

func (m *coordModel) decline(rt *rapid.T) {
	if ids := m.open(); len(ids) > 0 {
		m.apply(m.c.Decline(m.now, rapid.SampledFrom(ids).Draw(rt, "id"), errors.New("no")))
	}
}

func (m *coordModel) check(*rapid.T) {
	var ids []uint64
	for _, p := range m.c.Pending() {
		ids = append(ids, p.ID)
	}
	if want := m.open(); !slices.Equal(ids, want) || m.c.Last() != m.complete {
		m.rt.Fatalf("pending %v, want %v; last %d, want %d", ids, want, m.c.Last(), m.complete)
	}
	for _, id := range m.open() {
		if id < m.complete {
			m.rt.Fatalf("checkpoint %d is in flight, %d is complete", id, m.complete)
		}
	}
}

// TestAlignerRandom sends random streams with aborts through an aligner, and
// checks that every exactly-once cut has from each input just the records before
// the barrier.
func TestAlignerRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inputs := rapid.IntRange(1, 4).Draw(rt, "inputs")
		a := NewAligner(inputs, ExactlyOnce)
		next := make([]uint64, inputs)   // checkpoint of the next barrier of an input
		behind := make([]uint64, inputs) // checkpoint that the records taken belong to
		aborted := map[uint64]bool{}
		for i := range next {
			next[i], behind[i] = 1, 1
		}
		made := uint64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"record": func(rt *rapid.T) {
				in := rapid.IntRange(0, inputs-1).Draw(rt, "input")
				if a.Held(in) {
					if !errors.Is(a.Record(in), ErrHeld) {
						rt.Fatal("a record from a held input is no error")
					}
					return
				}
				if err := a.Record(in); err != nil {
					rt.Fatal(err)
				}
				behind[in] = next[in]
			},
			"barrier": func(rt *rapid.T) {
				in := rapid.IntRange(0, inputs-1).Draw(rt, "input")
				if a.Held(in) {
					return
				}
				id := next[in]
				next[in]++
				if aborted[id] && rapid.Bool().Draw(rt, "lost") {
					return
				}
				cut := a.Barrier(in, id)
				if cut == 0 {
					return
				}
				if cut != id || aborted[cut] || cut <= made {
					rt.Fatalf("cut %d at barrier %d, after %d; aborted: %v", cut, id, made, aborted[cut])
				}
				made = cut
				for i := range next {
					if next[i] != cut+1 || behind[i] > cut || a.Held(i) {
						rt.Fatalf("cut %d: input %d is at barrier %d, has records of %d, held %v", cut, i, next[i], behind[i], a.Held(i))
					}
				}
			},
			"abort": func(rt *rapid.T) {
				id := made + rapid.Uint64Range(0, 1).Draw(rt, "ahead") + 1
				for n := made + 1; n <= id; n++ {
					aborted[n] = true
				}
				a.Abort(id)
				made = max(made, id)
			},
			"": func(*rapid.T) {
				held := 0
				for i := range inputs {
					if a.Held(i) {
						held++
					}
				}
				if held == inputs {
					t.Fatal("every input is held back")
				}
			},
		})
	})
}
