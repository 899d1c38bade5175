import type { Layer } from '../mesh/call.ts'
import { attemptOutcomeOf } from '../mesh/classify.ts'
import type { Metrics } from './metrics.ts'

/** Counts every attempt at a server, with its verdict. */
export function observeAttempt(
  { attempts }: Pick<Metrics, 'attempts'>,
  isListed: (server: string, tool: string) => boolean,
): Layer {
  return (next) => (call) =>
    next(call).then((outcome) => {
      const { server, tool } = call
      if (tool === undefined) return outcome
      const label = isListed(server, tool) ? tool : '_other'
      const verdict = outcome.kind === 'answered' ? outcome.verdict : ''
      attempts.inc({ server, tool: label, outcome: attemptOutcomeOf(outcome), verdict })
      return outcome
    })
}
