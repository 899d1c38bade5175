import { z } from 'zod'
import type { Call } from '../../../mesh/call.ts'
import type { Shot } from '../../fault.ts'
import type { OperatorName } from '../../operators/index.ts'
import type { OperatorConfig } from '../../operators/operator.ts'
import type { Change, ToolResult } from './change.ts'
import { chosen, mutated, type Choosing, type Done, type Sync } from './mutate.ts'

/** Which operators: listed ones, or one that is drawn of those named. */
interface Plan extends Choosing {
  readonly operators: 'auto' | readonly OperatorConfig[]
  readonly names: readonly OperatorName[]
}

/** The setting that says which of the two forms of a result is changed. */
export const sync = z
  .enum(['both', 'structured_only', 'text_only'])
  .default('both')
  .describe('Whether structured content and text that is JSON change alike, or only one of them.')

/** What the tool of a call says of its structured content, for operators to choose by. */
export const schemaOf = ({ server, tool }: Call, { world }: Shot): unknown =>
  tool === undefined ? undefined : world.outputSchemaOf(server, tool)

/** Applies a plan to a result. Operators that fit nowhere are noted; when none fits, there is no change. */
export function changeBy(result: ToolResult, plan: Plan, sync: Sync, shot: Shot): Change {
  const done: Done[] = []
  const missed: string[] = []
  let changed = result
  for (const [index, config] of configsOf(result, plan, sync, shot).entries()) {
    const step = mutated(changed, config, sync, (purpose) => shot.draw(`${purpose} ${index}`), plan.schema)
    if (step === undefined) missed.push(config.path === undefined ? config.op : `${config.op} ${config.path}`)
    else {
      changed = step.result
      done.push(step.done)
    }
  }
  if (done.length === 0)
    return missed.length === 0 ? 'no operator fits the reply' : `does not fit the reply: ${missed.join(', ')}`
  return { result: changed, note: missed.length === 0 ? { done } : { done, missed } }
}

function configsOf(result: ToolResult, plan: Plan, sync: Sync, shot: Shot): readonly OperatorConfig[] {
  if (plan.operators !== 'auto') return plan.operators
  const config = chosen(result, plan.names, sync, (purpose) => shot.draw(purpose), plan)
  return config === undefined ? [] : [config]
}
