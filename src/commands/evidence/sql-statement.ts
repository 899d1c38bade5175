/** A query, after white space, empty statements and comments. */
const QUERY =
  /^(?:\s|;|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)*(?:\(|(?:select|with|from|values|table|describe|desc|show|summarize|pivot|unpivot)\b)/i

/** EXPLAIN with its options, after the same. */
const EXPLAIN =
  /^(?:\s|;|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)*explain\b\s*(?:analyze\b\s*)?(?:\(\s*(?:analyze|format)\b[^()]*\)\s*)?/i

/**
 * Returns the query in a text: the whole text, or the text behind EXPLAIN. Undefined unless the text begins like a
 * query, and for a text with a NUL, where DuckDB would end it. DuckDB's types of statements are not enough: some PRAGMA
 * have the type SELECT, and EXPLAIN ANALYZE of COPY has the type EXPLAIN.
 */
export function queryIn(sql: string): string | undefined {
  const query = sql.replace(EXPLAIN, '')
  return QUERY.test(query) && !sql.includes('\0') ? query : undefined
}
