package pipeline

import "context"

// A brokenSource fails after so many records, as a crash does: without a final
// checkpoint.
type brokenSource struct {
	Source
	left int
}

func (s *brokenSource) Read(ctx context.Context, limit int) ([][]byte, error) {
	if s.left == 0 {
		return nil, errCrash
	}
	recs, err := s.Source.Read(ctx, min(limit, s.left))
	s.left -= len(recs)
	return recs, err
}
