import { dirname, resolve } from 'node:path'
import { z } from 'zod'
import { readBy } from '../../../load/workload.ts'
import { UnusableInput } from '../../shared/arguments.ts'

const text = (max: number) => z.string().trim().min(1).max(max)
const file = text(1_000)
const written = z.record(z.string(), z.unknown())

const change = z.strictObject({
  diff: text(100_000).describe('The change of the config as a unified diff of one file.'),
  effect: text(500).describe('The expected effect, with a number.'),
  harm: text(500).describe('The load under which the change would do harm.'),
  recording: file.optional(),
  compare: z
    .strictObject({
      workload: file,
      faults: file.optional(),
      tasks: z.int().min(1).max(12_500).default(100),
      seed: z.int().min(0).default(1),
    })
    .optional(),
})

const cycle = z
  .strictObject({
    server: text(64),
    hypothesis: text(500),
    plan: text(64).optional(),
    spec: written.optional(),
    firstStage: z.int().min(1).max(10).default(1),
    why: text(500),
    expect: written.optional(),
    change: change.optional(),
  })
  .refine(({ plan, spec }) => (plan === undefined) !== (spec === undefined), {
    error: 'expected either "plan" (a plan of the gateway) or "spec" (a whole experiment)',
  })

/** The decisions of a cycle that a model would make. Files are absolute paths. */
export type Cycle = z.output<typeof cycle>

/** Reads a script; paths in it are relative to its folder. Rejects with an `UnusableInput`. */
export async function readCycle(path: string): Promise<Cycle> {
  const read = await readBy(path, () => cycle)
  if (!read.ok) throw new UnusableInput(read.problems.join('\n'))
  const { change: changed, ...rest } = read.value
  if (changed === undefined) return rest
  const absolute = (name: string) => resolve(dirname(path), name)
  const { recording, compare } = changed
  return {
    ...rest,
    change: {
      ...changed,
      ...(recording !== undefined && { recording: absolute(recording) }),
      ...(compare !== undefined && {
        compare: {
          ...compare,
          workload: absolute(compare.workload),
          ...(compare.faults !== undefined && { faults: absolute(compare.faults) }),
        },
      }),
    },
  }
}
