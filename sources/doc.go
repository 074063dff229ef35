// Package sources reads records from files, standard input and memory.
package sources
