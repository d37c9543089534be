//go:build !linux

package natsd_test

// machineMain does nothing: there is no disk here whose power can be cut.
func machineMain() {}
