import { derive, type Call, type CallRecord, type Outcome } from '../../mesh/call.ts'
import type { Scope } from '../../mesh/policy.ts'
import { noteOverruled } from '../../mesh/record.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { isFinal } from '../state/final-result.ts'

/** A way to another answer: asks for it, and says why it was needed. Undefined when there is none. */
export type Detour = (call: Call, failure: string) => Promise<Outcome | undefined>

/** Most fallbacks in a row: one whose own fallback leads back to it would go on for ever. */
const MOST_IN_A_ROW = 3

/** How many detours a call is on. */
const detours = new WeakMap<CallRecord, number>()

const nothing = Promise.resolve(undefined)

/** Sends the call to another tool, through all policies of that tool. */
export function toFallback(
  { tool, server: named }: { readonly tool: string; readonly server?: string | undefined },
  scope: Scope,
  notice: boolean,
): Detour {
  const server = named ?? scope.server
  const name = server === scope.server ? tool : `${server}/${tool}`
  return (call, failure) => {
    const { record } = call
    const before = detours.get(record) ?? 0
    // A call that goes on where the server had left off means nothing to another tool.
    if (before >= MOST_IN_A_ROW || paramsOf(call.message.value).requestState !== undefined) return nothing
    const detour = scope.detour(call, server, tool)
    if (detour === undefined) return nothing
    detours.set(record, before + 1)
    const ended = () => detours.set(record, before)
    const asked = detour.service(server === call.server ? asAnother(detour.call) : detour.call)
    asked.then(ended, ended)
    return asked.then((outcome) => {
      noteOverruled(record, outcome)
      if (outcome.kind !== 'answered' || !isUsable(outcome)) return undefined
      const reason = `answered by ${name} because ${failure}${alsoPartial(outcome)}`
      return { ...outcome, partial: { source: 'fallback', reason, notice } }
    })
  }
}

/** In one conversation no id may come twice. */
function asAnother(call: Call): Call {
  return derive(call, { attempt: call.attempt + 1 })
}

/** An `input_required` is none: the caller would take its answer to the tool that failed. */
function isUsable({ result, verdict }: Outcome & { kind: 'answered' }): boolean {
  return verdict !== 'rpc_error' && verdict !== 'tool_error' && isFinal(result)
}

/** Something may be missing of that answer too. */
function alsoPartial({ partial }: Outcome & { kind: 'answered' }): string {
  return partial === undefined ? '' : `; and ${partial.reason}`
}
