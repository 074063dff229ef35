package file

import (
	"maps"
	"testing"

	"github.com/walsink/walsink/sinks"
)

// TestProbeKinds: what a file system is known for decides.
func TestProbeKinds(t *testing.T) {
	for magic := range maps.Keys(kinds) {
		f := kindOf(magic)
		if weak := kinds[magic].weak != ""; (f.Guarantee < sinks.ExactlyOnce) != weak || (f.Advice != "") != weak || f.Found == "" {
			t.Errorf("%#x: %+v", magic, f)
		}
	}
	if f := kindOf(0x12345678); f.Guarantee != sinks.ExactlyOnce || f.Found != "type 0x12345678" {
		t.Errorf("unknown: %+v", f)
	}
	if shm, err := Probe(t.Context(), "/dev/shm", Options{}); err != nil || about(t, shm, "file system").Guarantee != sinks.AtLeastOnce {
		t.Errorf("tmpfs: %+v, %v", shm, err)
	}
}
