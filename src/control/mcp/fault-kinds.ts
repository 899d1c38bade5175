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
    schema: withoutRepeats(
      z.toJSONSchema(schema as unknown as z.ZodType, {
        io: 'input',
        unrepresentable: 'any',
        reused: 'inline',
      }),
    ),
    example: { ...example, type },
  }
}

/** Returns a schema in which each description stands once: an answer has little room. */
function withoutRepeats(schema: unknown, seen = new Set<string>()): unknown {
  if (Array.isArray(schema)) return schema.map((item) => withoutRepeats(item, seen))
  if (typeof schema !== 'object' || schema === null) return schema
  return Object.fromEntries(
    Object.entries(schema).flatMap(([key, value]) => {
      if (key !== 'description' || typeof value !== 'string') return [[key, withoutRepeats(value, seen)]]
      if (seen.has(value)) return []
      seen.add(value)
      return [[key, value]]
    }),
  )
}
