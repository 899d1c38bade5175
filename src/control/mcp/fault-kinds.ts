import { z } from 'zod'
import { faults } from '../../chaos/faults/index.ts'

/** Returns a kind of fault for the table of all kinds. */
export function faultRow(type: string) {
  const { family, about, sides, transports, methods = ['tools/call'], containedBy } = faults[type]!
  return {
    type,
    family,
    about,
    sides,
    transports: (transports?.only ?? []) as readonly string[],
    ...(methods.includes('tools/call') ? {} : { inExperiments: false }),
    containedBy: containedBy.policies,
  }
}

/** Returns all about a kind of fault: its fields as a JSON Schema, an example, its effect. */
export function faultDetail(type: string): Record<string, unknown> {
  const { use, seen, containedBy, schema, example } = faults[type]!
  return {
    ...faultRow(type),
    use,
    seen,
    how: containedBy.how,
    schema: z.toJSONSchema(schema as unknown as z.ZodType, {
      io: 'input',
      unrepresentable: 'any',
      reused: 'inline',
    }),
    example: { ...example, type },
  }
}
