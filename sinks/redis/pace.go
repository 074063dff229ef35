package redis

import "time"

// A pace finds out how much may go into one script call, from how long the calls
// before kept the server. Cost is counted in units: a command is one, and each
// unitBytes of arguments is one more.
type pace struct {
	target time.Duration
	units  int
}

const (
	unitBytes  = 256
	firstUnits = 512
	minUnits   = 8
	maxUnits   = 8192
)

func newPace(o Options) pace { return pace{target: o.ChunkTime, units: firstUnits} }

// learn takes the measured time of a chunk. The size at most doubles, and falls
// at once.
func (p *pace) learn(units int, took time.Duration) {
	if units < p.units/4 && took < p.target {
		return // too small to tell
	}
	took = max(took, 10*time.Microsecond)
	fit := int(float64(units) * float64(p.target) / float64(took))
	p.units = min(max(fit, minUnits), 2*p.units, maxUnits)
}
