// Package pipeline runs sources, transforms and outputs, with checkpoints through
// all of them.
package pipeline
