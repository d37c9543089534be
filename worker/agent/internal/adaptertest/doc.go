// Package adaptertest has what the tests of all agents share. It replays what real
// agents wrote through their decoders, and runs agents as a worker does: as a plain
// process, or in a strict jail whose only way out is a gate to a scripted model.
package adaptertest
