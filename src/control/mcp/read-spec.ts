import { refusal, type Refusal } from '../../approval/refusal.ts'
import type { Spec } from '../../experiments/guarded/spec.ts'
import { Origins } from '../../config/files/places.ts'
import { explain } from '../../config/issues/explain.ts'
import type { Operations } from './tool.ts'

/** Longest words about a spec's mistakes, in characters. */
const LONGEST_WORDS = 2_000

/** Reads the experiment that a tool's arguments name or hold, with an estimate in place of the spec's own. */
export async function readSpec(
  asked: {
    readonly plan?: string | undefined
    readonly spec?: Readonly<Record<string, unknown>> | undefined
    readonly expect?: Readonly<Record<string, unknown>> | undefined
  },
  { plans, spec: schema }: Pick<Operations, 'plans' | 'spec'>,
): Promise<{ readonly ok: true; readonly spec: Spec } | Refusal> {
  const { plan, spec: given, expect } = asked
  if ((plan === undefined) === (given === undefined)) return refusal('invalid', 'give either plan or spec')
  let written: unknown = given
  if (plan !== undefined) {
    const found = await plans.find(plan, 'guarded')
    if (found === undefined) return refusal('not_found', `there is no plan ${plan}`, { see: 'list_plans' })
    if (!found.ok)
      return refusal(
        'invalid',
        `the plan ${plan} cannot be used: ${found.problems.join('; ').slice(0, LONGEST_WORDS)}`,
      )
    written = found.written
  }
  const value = expect === undefined ? written : { ...(written as object), estimate: expect }
  const read = schema.safeParse(value, { error: () => '' })
  if (read.success) return { ok: true, spec: read.data }
  const issues = explain(read.error.issues, { schema, value, origins: new Origins() })
  const words = issues.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ')
  return refusal('invalid', `the spec cannot be used: ${words.slice(0, LONGEST_WORDS)}`)
}
