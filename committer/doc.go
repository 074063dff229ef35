// Package committer is the flush engine.
package committer
