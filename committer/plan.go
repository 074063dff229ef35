package committer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/walsink/walsink/sinks"
)

// A Plan says how a pipeline of several lanes starts from the ledger alone.
//
// The source goes to Position. It is replayed with a barrier forced at each of
// Barriers, in order, at exactly that source position and under exactly that
// checkpoint. Until a lane has passed all its Covered rows its records go to a
// Replay; after them they are appended and sealed as usual. Behind the last
// barrier the pipeline is free.
type Plan struct {
	// Position is where the source resumes, that of the lane that is least far.
	Position []byte
	// Checkpoint is that lane's.
	Checkpoint uint64
	// Barriers are those above it, ascending.
	Barriers []Barrier
	// Lanes are in the order of the marks.
	Lanes []LanePlan
}

// A Barrier is a checkpoint at a source position.
type Barrier struct {
	Checkpoint uint64
	Position   []byte
}

// A LanePlan is what one lane holds above the Plan's position.
type LanePlan struct {
	Lane string
	Mark sinks.Mark
	// Covered are the batches above the Plan's checkpoint that are in.
	Covered []sinks.Audit
}

// Recover computes the Plan from the marks of all lanes of a sink id and their
// retained audit rows, by lane and in order. All lanes must have had the same
// source: a checkpoint has one position. Refusals: ErrLedgerBehind if rows that
// are needed are no longer retained, ErrReplayDiffers if the ledger contradicts
// itself.
func Recover(marks []sinks.LaneMark, rows map[string][]sinks.Audit) (Plan, error) {
	if len(marks) == 0 {
		return Plan{}, nil
	}
	low := least(marks)
	p := Plan{Position: low.Position, Checkpoint: low.Checkpoint}
	at := map[uint64][]byte{p.Checkpoint: p.Position}
	for _, m := range marks {
		covered, err := cover(m, rows[m.Lane], p.Checkpoint)
		if err != nil {
			return Plan{}, fmt.Errorf("recover lane %s: %w", m.LaneID, err)
		}
		p.Lanes = append(p.Lanes, LanePlan{Lane: m.Lane, Mark: m.Mark, Covered: covered})
		for _, b := range ends(m.Mark, covered) {
			if old, ok := at[b.Checkpoint]; ok && !bytes.Equal(old, b.Position) {
				return Plan{}, fmt.Errorf("recover lane %s: %w: checkpoint %d has two positions; lanes with sources of their own are recovered one by one",
					m.LaneID, ErrReplayDiffers, b.Checkpoint)
			}
			at[b.Checkpoint] = b.Position
		}
	}
	for checkpoint, position := range at {
		if checkpoint > p.Checkpoint {
			p.Barriers = append(p.Barriers, Barrier{checkpoint, position})
		}
	}
	slices.SortFunc(p.Barriers, func(a, b Barrier) int { return cmp.Compare(a.Checkpoint, b.Checkpoint) })
	return p, nil
}

// least returns the mark of the lane that is least far.
func least(marks []sinks.LaneMark) sinks.LaneMark {
	return slices.MinFunc(marks, func(a, b sinks.LaneMark) int { return cmp.Compare(a.Checkpoint, b.Checkpoint) })
}

// ends are the batch ends that a lane needs to meet again.
func ends(m sinks.Mark, covered []sinks.Audit) []Barrier {
	out := []Barrier{{m.Checkpoint, m.Position}}
	for _, row := range covered {
		out = append(out, Barrier{row.Checkpoint, row.Position})
	}
	if m.Partial != nil {
		out = append(out, Barrier{m.Partial.Batch.Checkpoint, m.Partial.Batch.Position})
	}
	return out
}

// cover returns the rows above low, which must be a chain that ends at the mark.
func cover(m sinks.LaneMark, rows []sinks.Audit, low uint64) ([]sinks.Audit, error) {
	if m.Checkpoint <= low {
		return nil, nil
	}
	chain, seq, i := m.Chain, m.Seq, len(rows)
	for i > 0 && rows[i-1].Seq > m.Seq { // rows written since the mark was read
		i--
	}
	end := i
	for ; i > 0; i-- {
		row := rows[i-1]
		if row.Seq != seq || row.Chain() != chain {
			return nil, fmt.Errorf("%w: the audit row of batch %d does not lead to the mark", ErrReplayDiffers, row.Seq)
		}
		if row.Checkpoint <= low {
			return rows[i:end], nil
		}
		chain, seq = row.Prev, seq-1
	}
	if seq > 0 || chain != m.Genesis() {
		return nil, fmt.Errorf("%w: audit rows reach back to batch %d, but the lane that is least far ends at checkpoint %d; "+
			"restore the local state, or accept loss or duplicates", ErrLedgerBehind, seq+1, low)
	}
	return rows[i:end], nil
}

// Forward is the plan of a source that cannot go back: it goes on behind the lane
// that is furthest, and what the others lack is lost.
func (p Plan) Forward() Plan {
	if n := len(p.Barriers); n > 0 {
		p.Position, p.Checkpoint, p.Barriers = p.Barriers[n-1].Position, p.Barriers[n-1].Checkpoint, nil
	}
	p.Lanes = slices.Clone(p.Lanes)
	for i := range p.Lanes {
		p.Lanes[i].Covered = nil
	}
	return p
}

// ReadPlan is Recover with marks and audit rows read from a ledger. It keeps of the
// rows, which can be those of years, only what Recover looks at.
func ReadPlan(ctx context.Context, ledger sinks.Ledger, sink string) (Plan, error) {
	marks, err := ledger.Marks(ctx, sink)
	if err != nil {
		return Plan{}, fmt.Errorf("recover sink %s: marks: %w", sink, err)
	}
	rows := make(map[string][]sinks.Audit)
	if err := ReadRows(ctx, ledger, marks, rows); err != nil {
		return Plan{}, err
	}
	return Recover(marks, rows)
}

// ReadRows reads the audit rows that Recover looks at for these marks, and puts them
// before those that rows has of a lane: of batches that are not in yet.
func ReadRows(ctx context.Context, ledger sinks.Ledger, marks []sinks.LaneMark, rows map[string][]sinks.Audit) error {
	if len(marks) == 0 {
		return nil
	}
	low := least(marks).Checkpoint
	for _, m := range marks {
		var held []sinks.Audit
		for row, err := range ledger.Audit(ctx, m.LaneID, 0) {
			if err != nil {
				return fmt.Errorf("recover lane %s: audit rows: %w", m.LaneID, err)
			}
			if row.Checkpoint <= low {
				held = held[:0] // it replaces those before it
			}
			held = append(held, row)
		}
		if ahead := rows[m.Lane]; len(ahead) > 0 { // after a roll-back rows may say more than the mark
			i := slices.IndexFunc(held, func(row sinks.Audit) bool { return row.Seq >= ahead[0].Seq })
			if i >= 0 {
				held = held[:i]
			}
		}
		rows[m.Lane] = append(held, rows[m.Lane]...)
	}
	return nil
}
