// Package archtest holds the rules of the module that are about its shape, as
// tests: who may import whom, what is documented, which crash points exist, what
// no file may say. It has no code of its own.
package archtest
