/* Go's runtime gets its random numbers from bcryptprimitives.dll, which Wine has provided only since
   version 9. This replacement forwards to advapi32. */
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T n) { return SystemFunction036(data, (ULONG)n); }
