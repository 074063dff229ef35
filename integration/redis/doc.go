// Package redis tests the Redis sink against real servers: a shared one for what
// needs a store, one of its own for what maltreats it, and a cluster of three.
package redis
