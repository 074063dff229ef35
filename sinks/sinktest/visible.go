package sinktest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/walsink/walsink/sinks"
)

// differs says in what two marks differ, fence and time apart.
func differs(want, got sinks.Mark) string {
	switch {
	case got.Seq != want.Seq:
		return fmt.Sprintf("seq is %d, want %d", got.Seq, want.Seq)
	case got.Chain != want.Chain:
		return fmt.Sprintf("chain is %s, want %s", got.Chain, want.Chain)
	case got.Checkpoint != want.Checkpoint:
		return fmt.Sprintf("checkpoint is %d, want %d", got.Checkpoint, want.Checkpoint)
	case !bytes.Equal(got.Position, want.Position):
		return fmt.Sprintf("position is %s, want %s", brief(got.Position), brief(want.Position))
	case got.Records != want.Records || got.Dead != want.Dead:
		return fmt.Sprintf("it counts %d records and %d dead ones, want %d and %d", got.Records, got.Dead, want.Records, want.Dead)
	case (got.Partial == nil) != (want.Partial == nil):
		return fmt.Sprintf("partial is %v, want %v", got.Partial, want.Partial)
	case got.Partial == nil:
		return ""
	case got.Partial.Done != want.Partial.Done || !slices.Equal(got.Partial.Dead, want.Partial.Dead):
		return fmt.Sprintf("partial has %d records done, dead %v; want %d, %v",
			got.Partial.Done, got.Partial.Dead, want.Partial.Done, want.Partial.Dead)
	}
	if why := batchDiffers(want.Partial.Batch, got.Partial.Batch); why != "" {
		return "partial batch: " + why
	}
	return ""
}

// batchDiffers says in what two footers differ.
func batchDiffers(want, got any) string {
	if w, g := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); w != g {
		return fmt.Sprintf("it is %.500s, want %.500s", g, w)
	}
	return ""
}

func brief(b []byte) string {
	if len(b) <= 40 {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%d bytes from %q on", len(b), b[:40])
}

// verify compares what is visible with what a mark says.
func (t *tape) verify(m sinks.Mark) {
	t.Helper()
	p := t.place(m)
	if why := t.compare(t.h.Visible(t.TB, t.id), p); why != "" {
		t.violated("the mark is at batch %d, record %d, and %s", p.batches, p.records, why)
	}
	if t.h.DeadLetters == nil {
		return
	}
	if why := t.compareDead(t.h.DeadLetters(t.TB, t.id), p); why != "" {
		t.violated("the mark is at batch %d, record %d, and %s", p.batches, p.records, why)
	}
}

// compare says in what the payloads got are not those up to p.
func (t *tape) compare(got [][]byte, p place) string {
	want, all := t.good(p), t.good(p)
	if !t.exact() && p.before(t.offered) {
		all = t.good(t.offered)
	}
	index := make(map[string]int, len(all))
	for i, payload := range all {
		index[string(payload)] = i
	}
	var seen []int // in the order of the first time
	times := make([]int, len(all))
	for _, payload := range got {
		i, ok := index[string(payload)]
		if !ok {
			return fmt.Sprintf("%s is visible: it was not written, or its step did not take place", brief(payload))
		}
		if times[i]++; times[i] == 1 {
			seen = append(seen, i)
		} else if t.info.Guarantee > sinks.AtLeastOnce {
			return fmt.Sprintf("%s is visible %d times", brief(payload), times[i])
		}
	}
	for i, payload := range want {
		if times[i] == 0 {
			return fmt.Sprintf("%s, record %d of %d, is not visible", brief(payload), i, len(want))
		}
	}
	if !t.h.Unordered && !slices.IsSorted(seen) {
		return fmt.Sprintf("records are visible in the order %v", seen[:min(len(seen), 50)])
	}
	return ""
}

// A letter is what counts in a dead letter.
type letter struct {
	checkpoint, number uint64
	record             string
}

func (t *tape) letters(p place) (out []letter) {
	for i, items := range t.items {
		for n, it := range items {
			if it.bad && (place{i, n}).before(p) {
				out = append(out, letter{t.batches[i].Checkpoint, uint64(n), string(it.wire)})
			}
		}
	}
	return out
}

// compareDead says in what the dead letters are not those up to p.
func (t *tape) compareDead(dead []sinks.DeadLetter, p place) string {
	got := make([]letter, len(dead))
	for i, d := range dead {
		got[i] = letter{d.Checkpoint, d.Number, string(d.Record)}
	}
	slices.SortFunc(got, func(a, b letter) int {
		return cmp.Or(cmp.Compare(a.checkpoint, b.checkpoint), cmp.Compare(a.number, b.number))
	})
	want, all := t.letters(p), t.letters(p)
	if !t.exact() {
		all = t.letters(t.offered)
	}
	if t.info.Guarantee == sinks.AtLeastOnce {
		got = slices.Compact(got)
	}
	for i, d := range want {
		if i >= len(got) || got[i] != d {
			return fmt.Sprintf("the dead letters are %s; missing is checkpoint %d record %d", list(got), d.checkpoint, d.number)
		}
	}
	if len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
		return fmt.Sprintf("the dead letters are %s, want %s", list(got), list(all))
	}
	return ""
}

func list(letters []letter) string {
	var b strings.Builder
	for _, l := range letters {
		fmt.Fprintf(&b, " %d/%d %s", l.checkpoint, l.number, brief([]byte(l.record)))
	}
	return "[" + b.String() + " ]"
}
