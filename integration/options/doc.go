// Package options holds metamorphic tests: the same input gives the same rows under
// all options of pipeline, engine, log and sink.
package options
