import type { z } from 'zod'

type ZodIssue = z.core.$ZodIssue

/** What zod found, without unions: at a leaf, with its full path. */
export type LeafIssue = Exclude<ZodIssue, z.core.$ZodIssueInvalidUnion> | NoneOf

/** A value that is no alternative of a union, not even a wrong one. */
export interface NoneOf {
  readonly code: 'none_of'
  readonly path: PropertyKey[]
  readonly message: string
  readonly alternatives: readonly LeafIssue[]
}

/** Opens unions: the complaints of the alternative that the value resembles, or one about all of them. */
export function leafIssues(issues: readonly ZodIssue[], at: readonly PropertyKey[] = []): LeafIssue[] {
  return issues.flatMap((issue): LeafIssue[] => {
    const path = [...at, ...issue.path]
    if (issue.code !== 'invalid_union') return [{ ...issue, path }]
    const branches = issue.errors.map((errors) => leafIssues(errors, path))
    const alike = branches.filter((branch) => !branch.some((leaf) => isOfAnotherType(leaf, path)))
    const closest = alike.toSorted((a, b) => a.length - b.length)[0]
    if (closest !== undefined && issue.message === '') return closest
    return [{ code: 'none_of', path, message: issue.message, alternatives: branches.flat() }]
  })
}

function isOfAnotherType(leaf: LeafIssue, at: readonly PropertyKey[]): boolean {
  return ['invalid_type', 'invalid_value', 'none_of'].includes(leaf.code) && leaf.path.length === at.length
}
