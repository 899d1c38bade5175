import type { DecisionEntry } from '../../chaos/journal/entry.ts'
import type { FaultHits, WouldHit } from '../../routes/chaos/would-hit.ts'
import { ask, textOf, type Command } from './command.ts'
import { table } from './table.ts'

interface Explained {
  readonly decisions: readonly (DecisionEntry & { readonly words: string })[]
}

/** `explain CALL`: why a call was hit or not. */
export const explain: Command = {
  positionals: ['CALL'],
  run(args) {
    const path = `/admin/chaos/explain?call=${encodeURIComponent(args.positionals[0] ?? '')}`
    return ask(args, { method: 'GET', path }, ({ decisions }: Explained) => {
      let last: string | undefined
      return decisions.flatMap(({ callKey, orderDependent, at, call, words }) => {
        const isNew = callKey !== last
        last = callKey
        const order = orderDependent ? ' (depends on the order of calls)' : ''
        const title = `call ${String(call.id)} at ${new Date(at).toISOString()}, key ${callKey}${order}`
        return [...(isNew ? [title] : []), `  ${words}`]
      })
    })
  },
}

/** `plan --last 1h`: what was hit, and what shadow mode kept from being hit. */
export const plan: Command = {
  options: { last: { type: 'string' } },
  run(args) {
    const last = textOf(args.values, 'last') ?? '1h'
    const path = `/admin/chaos/plan?last=${encodeURIComponent(last)}`
    return ask(args, { method: 'GET', path }, (answer: WouldHit & { readonly mode: string }) => {
      const lines = [`the last ${last}, mode ${answer.mode}`]
      if (!answer.complete) lines.push('older entries are out of memory: these are the latest of that time')
      if (answer.faults.length === 0) return [...lines, 'no armed fault matched any call']
      const head = ['FAULT', 'TYPE', 'SERVER', 'TOOL', 'DECIDED', 'HIT', 'WOULD HIT']
      return [...lines, '', ...table(head, answer.faults.flatMap(rowsOf), args.width)]
    })
  },
}

const rowsOf = ({ fault, type, targets }: FaultHits) =>
  targets.map(({ server, tool, decided, hit, wouldHit }) => [
    fault,
    type,
    server,
    tool,
    decided,
    hit,
    wouldHit,
  ])
