package api

import (
	"context"

	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/responder"
)

func (s *Server) webhookHandlers() []responder.Handler {
	return []responder.Handler{
		handle(operation.WebhookAdd, s.addWebhook(false)),
		handle(operation.WebhookReplace, s.addWebhook(true)),
		handle(operation.WebhookList, s.webhookList),
		handle(operation.WebhookRemove, func(ctx context.Context, _ caller, r operation.Named) (operation.Named, error) {
			return r, s.cfg.Webhooks.Remove(ctx, r.Name)
		}),
		handle(operation.WebhookTest, func(ctx context.Context, _ caller, r operation.Named) (operation.Delivery, error) {
			return s.cfg.Deliverer.Test(ctx, r.Name)
		}),
		handle(operation.WebhookDeliveries, func(ctx context.Context, c caller, r operation.DeliveriesRequest) (operation.DeliveryPage, error) {
			return s.cfg.Webhooks.Deliveries(ctx, r, c.room)
		}),
		handle(operation.WebhookRedeliver, func(ctx context.Context, _ caller, r operation.DeliveryRef) (operation.DeliveryRef, error) {
			return r, s.cfg.Webhooks.Redeliver(ctx, r.ID)
		}),
	}
}

func (s *Server) addWebhook(replace bool) func(context.Context, caller, operation.WebhookRequest) (operation.Webhook, error) {
	return func(ctx context.Context, c caller, r operation.WebhookRequest) (operation.Webhook, error) {
		if err := s.cfg.Deliverer.Check(r.URL); err != nil {
			return operation.Webhook{}, err
		}
		return s.cfg.Webhooks.Add(ctx, r, c.name(), replace)
	}
}

func (s *Server) webhookList(ctx context.Context, c caller, r operation.PageRequest) (operation.WebhookPage, error) {
	list, err := s.cfg.Webhooks.List(ctx)
	if err != nil {
		return operation.WebhookPage{}, err
	}
	list = after(list, r.After, func(w operation.Webhook) string { return w.Name })
	part, more, err := page(list, r.Limit, c.room)
	answer := operation.WebhookPage{Webhooks: part}
	if more {
		answer.Next = part[len(part)-1].Name
	}
	return answer, err
}
