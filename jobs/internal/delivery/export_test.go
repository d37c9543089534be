package delivery

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/pause"
)

// CancelAndHand has one claimer wait for a message, cancels its wait, and hands it one before
// it has noticed. Took reports whether the claimer has the message.
func CancelAndHand(ctx context.Context, own *Claimers) (d Delivery, took bool, err error) {
	own.asking <- struct{}{} // so that this claimer has to wait for what it is handed
	defer func() { <-own.asking }()
	found, err := own.ask(ctx)
	if err != nil {
		return Delivery{}, false, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error)
	go func() {
		var err error
		d, err = own.Wait(waiting)
		ended <- err
	}()
	for own.wanted() < 2 {
		pause.For(ctx, time.Millisecond)
	}
	first := own.first()
	cancel()
	first <- found[0]
	took = <-ended == nil
	return d, took, ctx.Err()
}

// HoldAsking keeps claimers from asking the broker. Release waits until so many wait, and lets
// one of them ask.
func HoldAsking(ctx context.Context, own *Claimers) (release func(waiting int)) {
	own.asking <- struct{}{}
	return func(waiting int) {
		for own.wanted() <= waiting && ctx.Err() == nil {
			pause.For(ctx, time.Millisecond)
		}
		<-own.asking
	}
}

// JoinCrowd lets claimers, none of which asks, believe that many others wait for the same.
func JoinCrowd(own *Claimers) {
	for range 100 {
		own.crowd.Tell(true, false)
	}
}
