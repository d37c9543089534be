package none

import (
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
)

func features() []sandbox.Feature {
	f := []sandbox.Feature{sandbox.FeatureKill, sandbox.FeatureFileSize, sandbox.FeatureOpenFiles}
	for _, c := range cgroup.Supported() {
		f = append(f, sandbox.Feature(c))
	}
	if !cgroup.Can(cgroup.Memory) {
		f = append(f, sandbox.FeatureMemory) // kept by looking, and for each process
	}
	return f
}

func eachProcess(l sandbox.Limits) uint64 { return cgroup.EachProcess(l.Memory) }
