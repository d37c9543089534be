package deliver

import (
	"net"
	"net/netip"
	"time"
)

// Scheduled returns the configuration with other delays between attempts.
func (c Config) Scheduled(patience time.Duration, delays ...time.Duration) Config {
	c.schedule = schedule{delays, patience}
	return c
}

// NewSenderBy is NewSender with a resolver of names.
func NewSenderBy(allowed []netip.Prefix, resolver *net.Resolver) *Sender {
	return newSender(allowed, resolver)
}

// Standard are the delays between attempts, and for how long a webhook may fail.
func Standard() ([]time.Duration, time.Duration) { return standard.delays, standard.patience }

// Within changes how long an attempt may take.
func (s *Sender) Within(d time.Duration) { s.within = d }
