package pullrequest

import "time"

// Hurried returns the configuration with less time between the tries.
func Hurried(cfg Config) Config {
	cfg.first = time.Millisecond
	return cfg
}
