//go:build !linux

package file

import "github.com/walsink/walsink/sinks"

func (s *Sink) fileSystem() []sinks.Finding { return nil }
