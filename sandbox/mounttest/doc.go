// Package mounttest mounts file systems for tests, which end with them.
package mounttest
