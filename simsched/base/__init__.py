"""The ground floor: errors, units, files, the codec of types, native code."""
