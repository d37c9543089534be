package natsd

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-run/penstock/jobs/access"
)

// lookEvery is how often the free space is looked at: others fill the disk too.
const lookEvery = 2 * time.Second

func (s *Server) watchDisk(host string) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			err := s.heal(host)
			if err == nil {
				err = within("bound its store", s.limit)
			}
			if err != nil {
				s.stuck(err)
				return
			}
		}
	}
}

// limit lets the store use all free space except the reserve. A server that
// meets the end of the disk closes its store altogether; one that meets its
// limit refuses a write and says so.
func (s *Server) limit() {
	free, total, err := diskSpace(s.cfg.StoreDir)
	if err != nil {
		s.cfg.Logger.Warn("free disk space is not known; the store is not limited by it", "err", err)
		return
	}
	reserve := s.cfg.Reserve
	if reserve == 0 {
		reserve = min(1<<30, total/20)
	}
	acc, err := s.server().LookupAccount(access.Pool)
	if err != nil {
		s.cfg.Logger.Warn("the store is not limited by the free disk space", "err", err)
		return
	}
	used := int64(acc.JetStreamUsage().Store)
	most := used + max(0, free-reserve)
	if s.cfg.MaxStore > 0 {
		most = min(most, s.cfg.MaxStore)
	}
	// Zero would mean no limit at all.
	limits := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: max(1, most), MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
	if err := acc.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
		s.cfg.Logger.Warn("the store is not limited by the free disk space", "err", err)
	}
}
