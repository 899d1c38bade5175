import { z } from 'zod'
import type { Call, Layer, Outcome } from '../mesh/call.ts'
import { gatewayError } from '../mesh/errors.ts'
import { Fact } from '../mesh/record.ts'
import { counter } from '../mesh/metric-spec.ts'
import type { Policy } from '../mesh/policy.ts'
import { paramsOf } from '../protocol/jsonrpc.ts'
import { schemaStates, sharedSchemas } from './state/schemas.ts'
import type { Mismatch } from './state/schemas/mismatch.ts'

const schema = z
  .strictObject({
    check: z
      .enum(['off', 'report', 'enforce'])
      .default('report')
      .describe(
        'Calls with arguments that break the inputSchema of their tool: ignored, counted, or rejected with an error ' +
          'from which a model can correct itself. Arguments pass when a check would take too much CPU time: texts whose pattern could take exponential time, and values whose check would take too long.',
      ),
  })
  .describe('Checks the arguments of a tool call before anything is sent.')

export const invalidArguments = new Fact(false, {
  about: "The arguments break the tool's `inputSchema`.",
  log: 'invalidArguments',
  event: () => ({ decision: 'invalid' }),
  counting: {
    metric: counter(
      'invalid_arguments_total',
      "Calls with arguments that break the tool's schema, rejected or not.",
      ['server', 'tool', 'arm'],
      'tools × arms',
    ),
  },
})

/** Compares arguments with the tool's `inputSchema`; arguments that cannot be checked pass. */
export const argumentsPolicy: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Leave it at `report` to see how often models get arguments wrong. Use `enforce` where running a tool with wrong arguments does harm. Do not use `enforce` for servers that accept more than their `inputSchema` says.',
  facts: [invalidArguments],
  states: [schemaStates],
  build({ check: mode }, context, scope): Layer {
    if (mode === 'off') return (next) => next
    const schemas = sharedSchemas(context)
    return (next) => {
      return (call) => {
        if (call.tool === undefined) return next(call)
        if (mode !== 'enforce') return checked(call)
        const pending = schemas.settled(scope.facts()?.inputSchema, 'arguments', call.signal)
        return pending === undefined ? checked(call) : pending.then(() => checked(call))
      }

      function checked(call: Call): Promise<Outcome> {
        const check = schemas.find(scope.facts()?.inputSchema, 'arguments')
        if (check === undefined) return next(call)
        const finding = check(paramsOf(call.message.value).arguments ?? {})
        if (typeof finding === 'string') return next(call)
        invalidArguments.note(call.record, true)
        call.record.isInvalid = true
        return mode === 'enforce' ? Promise.resolve(rejection(finding)) : next(call)
      }
    }
  },
}

function rejection(found: readonly Mismatch[]): Outcome {
  const what = found.map(({ path, expected }) => `${path} ${expected}`).join(', ')
  const message = `the arguments do not fit the tool’s inputSchema: ${what}`
  return { kind: 'rejected', error: gatewayError('invalid_arguments', message), by: 'arguments' }
}
